package beforehand.edge;

import java.io.File;
import java.util.List;
import java.util.Objects;
import java.util.function.LongSupplier;

/** What an app sets. Only the address and the keys are needed. */
public final class EdgeOptions {
    final String baseUrl;
    final List<String> keys;
    String appVersion = "";
    boolean consent;
    File cacheDir;
    String format = "onnx";
    int maxBytes = 8 * 1024 * 1024;
    long maxCacheBytes = 16L * 1024 * 1024;
    int fetchTimeoutMs = 30_000;
    Verifier verifier = Verifier.platform();
    Fetcher fetcher = new HttpFetcher();
    LongSupplier clock = System::currentTimeMillis;
    Encoder.Factory encoders = OrtEncoder::new;

    private EdgeOptions(String baseUrl, List<String> keys) {
        this.baseUrl = Objects.requireNonNull(baseUrl, "baseUrl").replaceAll("/+$", "");
        this.keys = List.copyOf(keys);
    }

    /**
     * @param baseUrl where bundles are served: {@code https://…/v1/edge}
     * @param keys what bundles may be signed with: 32 bytes in base64 each, as {@code beforehand edge bundle} prints
     */
    public static EdgeOptions of(String baseUrl, String... keys) {
        return new EdgeOptions(baseUrl, List.of(keys));
    }

    /** Version of the app, as numbers with dots: decides which bundles it gets. */
    public EdgeOptions appVersion(String version) {
        appVersion = Objects.requireNonNull(version);
        return this;
    }

    /** Whether the user has agreed. Without it nothing is fetched, kept or computed. By default false. */
    public EdgeOptions consent(boolean given) {
        consent = given;
        return this;
    }

    /** Where bundles are kept between starts; by default nowhere. */
    public EdgeOptions cacheDir(File folder) {
        cacheDir = folder;
        return this;
    }

    /** {@code ort} is larger and loads faster; some builds of the runtime read nothing else. By default {@code onnx}. */
    public EdgeOptions format(String onnxOrOrt) {
        format = Objects.requireNonNull(onnxOrOrt);
        return this;
    }

    /** Of what is loaded before the first embedding, and of what is kept. By default 8 and 16 MB. */
    public EdgeOptions maxBytes(int first, long kept) {
        maxBytes = first;
        maxCacheBytes = kept;
        return this;
    }

    /** Of one file. By default 30 s. */
    public EdgeOptions fetchTimeoutMs(int limit) {
        fetchTimeoutMs = limit;
        return this;
    }

    /** For platforms without Ed25519: Android, and Java before 15. */
    public EdgeOptions verifier(Verifier ed25519) {
        verifier = Objects.requireNonNull(ed25519);
        return this;
    }

    /** The app's own HTTP stack. */
    public EdgeOptions fetcher(Fetcher http) {
        fetcher = Objects.requireNonNull(http);
        return this;
    }

    /** Wall clock in ms. */
    public EdgeOptions clock(LongSupplier nowMs) {
        clock = Objects.requireNonNull(nowMs);
        return this;
    }

    String runtimeVersion() {
        try {
            return OrtEncoder.version();
        } catch (LinkageError e) {
            return "0"; // no native runtime for this device
        }
    }
}
