package beforehand.edge;

import java.util.Map;

/** What the SDK is doing. Counts are of this process. */
public final class Status {
    public final boolean loaded;
    public final String bundle;
    public final String release;
    /** Which export the bundle holds: fp32, fp16 or int8. */
    public final String graph;
    /** What became of the last look for a bundle; null before the first. */
    public final BundleReason update;

    public final long fetchedBytes;
    /** The last write to the cache was refused; then bundles are fetched again at the next start. */
    public final boolean cacheFull;
    /** Events whose items' codes are still being fetched. */
    public final int pending;

    /** The median of the last runs. A prompt with less time than this left is TOO_LATE at once; some are tried. */
    public final Double usualMs;

    public final Map<EdgeReason, Long> events;
    public final Map<EdgeReason, Long> prompts;

    Status(Content content, Updates updates, Source source, int pending, long usualNs, Counts events, Counts prompts) {
        loaded = content != null;
        bundle = loaded ? content.id : null;
        release = loaded ? content.release : null;
        graph = loaded ? content.graph : null;
        update = updates.reason();
        fetchedBytes = source.fetchedBytes();
        cacheFull = source.cache.full();
        this.pending = pending;
        usualMs = usualNs == 0 ? null : usualNs / 1e6;
        this.events = events.all();
        this.prompts = prompts.all();
    }
}
