package beforehand.edge;

/** What became of a bundle that was offered; whatever is not OK leaves the present one in use. */
public enum BundleReason {
    OK,
    UNREACHABLE,
    HTTP_ERROR,
    TIMED_OUT,
    NO_OFFER,
    NOT_NEWER,
    UNKNOWN_KEY,
    BAD_SIGNATURE,
    CORRUPT,
    TOO_NEW,
    RUNTIME_TOO_OLD,
    TOO_LARGE,
    TOO_OLD,
    DOES_NOT_LOAD;

    /** The word that all SDKs share. */
    public String word() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }
}
