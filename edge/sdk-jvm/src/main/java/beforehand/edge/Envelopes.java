package beforehand.edge;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.json.JSONException;
import org.json.JSONObject;

/** Signed JSON: nothing in the payload is believed before the signature is checked ({@code edge/envelope.py}). */
final class Envelopes {
    private static final int FORMAT = 1;

    private final Map<String, byte[]> keys = new HashMap<>();
    private final Verifier verifier;

    /** @throws IllegalArgumentException when a key is not 32 bytes in base64 */
    Envelopes(List<String> pinned, Verifier verifier) {
        this.verifier = verifier;
        for (String text : pinned) {
            byte[] key = Base64.getDecoder().decode(text);
            if (key.length != 32) {
                throw new IllegalArgumentException("not an Ed25519 key: " + text);
            }
            keys.put(sha256(key).substring(0, 16), key);
        }
    }

    /** The payload. Refuses: corrupt, unknown_key, bad_signature, too_new. */
    JSONObject open(byte[] raw) throws RefusedException {
        try {
            JSONObject envelope = new JSONObject(text(raw));
            byte[] key = keys.get(envelope.getString("key"));
            if (key == null) {
                throw new RefusedException(BundleReason.UNKNOWN_KEY, envelope.getString("key"));
            }
            String payload = envelope.getString("payload");
            byte[] signature = Base64.getDecoder().decode(envelope.getString("signature"));
            if (!verifier.verify(key, signature, payload.getBytes(StandardCharsets.UTF_8))) {
                throw new RefusedException(BundleReason.BAD_SIGNATURE, envelope.getString("key"));
            }
            JSONObject value = new JSONObject(payload);
            if (value.getInt("format") > FORMAT) {
                throw new RefusedException(BundleReason.TOO_NEW, "format " + value.getInt("format"));
            }
            return value;
        } catch (JSONException | IllegalArgumentException e) {
            throw RefusedException.corrupt(e.getMessage());
        }
    }

    /** In hex. */
    static String sha256(byte[] bytes) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte each : MessageDigest.getInstance("SHA-256").digest(bytes)) {
                hex.append(Character.forDigit((each >> 4) & 0xf, 16)).append(Character.forDigit(each & 0xf, 16));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java has it
        }
    }

    private static String text(byte[] raw) throws RefusedException {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(raw)).toString();
        } catch (CharacterCodingException e) {
            throw RefusedException.corrupt("not UTF-8");
        }
    }
}
