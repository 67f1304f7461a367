package beforehand.edge;

/** A bundle that is refused. Stays inside the SDK. */
final class RefusedException extends Exception {
    private static final long serialVersionUID = 1L;

    final BundleReason reason;

    RefusedException(BundleReason reason, String detail) {
        super(reason.word() + ": " + detail);
        this.reason = reason;
    }

    static RefusedException corrupt(String detail) {
        return new RefusedException(BundleReason.CORRUPT, detail);
    }
}
