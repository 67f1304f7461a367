package beforehand.edge;

/** Ed25519. Java 15 and later have it ({@link #platform()}); on Android hand in that of a library. */
public interface Verifier {
    /**
     * @param key the public key, 32 bytes
     * @param signature 64 bytes
     * @return whether the signature is genuine; never throws for a wrong one
     */
    boolean verify(byte[] key, byte[] signature, byte[] message);

    /** The platform's own; it refuses everything where there is none. */
    static Verifier platform() {
        return new PlatformVerifier();
    }
}
