package beforehand.edge;

import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.Signature;
import java.security.spec.X509EncodedKeySpec;
import java.util.Arrays;

/** {@code java.security}'s Ed25519. */
final class PlatformVerifier implements Verifier {
    /** What stands before the 32 bytes of an Ed25519 key in its X.509 form (RFC 8410). */
    private static final byte[] PREFIX = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};

    @Override
    public boolean verify(byte[] key, byte[] signature, byte[] message) {
        byte[] encoded = Arrays.copyOf(PREFIX, PREFIX.length + key.length);
        System.arraycopy(key, 0, encoded, PREFIX.length, key.length);
        try {
            Signature ed25519 = Signature.getInstance("Ed25519");
            ed25519.initVerify(KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(encoded)));
            ed25519.update(message);
            return ed25519.verify(signature);
        } catch (GeneralSecurityException e) {
            return false;
        }
    }
}
