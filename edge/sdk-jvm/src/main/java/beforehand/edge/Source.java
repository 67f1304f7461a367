package beforehand.edge;

import java.io.IOException;
import java.net.SocketTimeoutException;

/** Verified files of bundles: from the cache when their digest is there, from whatever bundle; else fetched. */
final class Source {
    private static final int MAX_CURRENT_BYTES = 64 * 1024;
    private static final int MAX_MANIFEST_BYTES = 4 * 1024 * 1024;

    final EdgeOptions options;
    final Envelopes envelopes;
    final Cache cache;
    private volatile long fetchedBytes;

    Source(EdgeOptions options) {
        this.options = options;
        envelopes = new Envelopes(options.keys, options.verifier);
        cache = new Cache(options.cacheDir, options.maxCacheBytes);
    }

    long fetchedBytes() {
        return fetchedBytes;
    }

    byte[] current() throws RefusedException {
        return fetch("current.json", MAX_CURRENT_BYTES);
    }

    byte[] manifest(String id) throws RefusedException {
        return fetch(id + "/manifest.json", MAX_MANIFEST_BYTES);
    }

    byte[] file(Content content, String name) throws RefusedException {
        Content.Entry entry = content.file(name);
        byte[] kept = cache.file(entry.sha256);
        if (kept != null && Envelopes.sha256(kept).equals(entry.sha256)) {
            return kept;
        }
        if (entry.numBytes > options.maxBytes) {
            throw new RefusedException(BundleReason.TOO_LARGE, name);
        }
        byte[] bytes = fetch(content.id + "/" + name, (int) entry.numBytes);
        if (bytes.length != entry.numBytes || !Envelopes.sha256(bytes).equals(entry.sha256)) {
            throw RefusedException.corrupt(name + " has other bytes");
        }
        cache.putFile(entry.sha256, bytes);
        return bytes;
    }

    private byte[] fetch(String path, int maxBytes) throws RefusedException {
        try {
            byte[] bytes = options.fetcher.fetch(options.baseUrl + "/" + path, maxBytes, options.fetchTimeoutMs);
            fetchedBytes += bytes.length;
            if (bytes.length > maxBytes) {
                throw new RefusedException(BundleReason.TOO_LARGE, path);
            }
            return bytes;
        } catch (Fetcher.StatusException e) {
            throw new RefusedException(BundleReason.HTTP_ERROR, e.getMessage());
        } catch (SocketTimeoutException e) {
            throw new RefusedException(BundleReason.TIMED_OUT, path);
        } catch (IOException e) {
            throw new RefusedException(BundleReason.UNREACHABLE, String.valueOf(e.getMessage()));
        }
    }
}
