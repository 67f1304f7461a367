package beforehand.edge;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** The encoder's thread: one run after the other, each stopped when its time is over. */
final class Prompter {
    private final Loader loader;
    private final Visit visit;
    private final LongSupplier clock;
    private final Pace pace = new Pace();
    private final ExecutorService thread = Executors.newSingleThreadExecutor(task -> Edge.daemon(task, "edge-encoder"));

    Prompter(Loader loader, Visit visit, LongSupplier clock) {
        this.loader = loader;
        this.visit = visit;
        this.clock = clock;
    }

    /**
     * Wait for the bundle and the run until {@code deadlineNs} (of {@link System#nanoTime}).
     *
     * @param bucket of the user who asked, or null when that user has gone meanwhile
     */
    Outcome attempt(long deadlineNs, Supplier<Object> bucket) {
        Encoder.Stop stop = new Encoder.Stop();
        try {
            loader.started().get(deadlineNs - System.nanoTime(), TimeUnit.NANOSECONDS);
            return thread.submit(() -> make(bucket.get(), stop, deadlineNs)).get(deadlineNs - System.nanoTime(), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            stop.now();
            return Outcome.none(loader.updates.bundle() == null ? EdgeReason.NOT_LOADED : EdgeReason.TOO_LATE);
        } catch (InterruptedException e) {
            stop.now();
            Thread.currentThread().interrupt();
            return Outcome.none(EdgeReason.TOO_LATE);
        } catch (ExecutionException e) {
            return Outcome.none(EdgeReason.ENCODE_FAILED);
        } catch (RejectedExecutionException e) {
            return Outcome.none(EdgeReason.NOT_LOADED);
        }
    }

    /** Median of the last runs; 0 before there are enough. */
    long usualNs() {
        return pace.usualNs();
    }

    /** Free a bundle's encoder, after the runs that are under way; the next one has a pace of its own. */
    void retire(Bundle bundle) {
        pace.forget();
        try {
            thread.execute(bundle.encoder::close);
        } catch (RejectedExecutionException e) {
            bundle.encoder.close(); // it was loaded while the SDK was being closed
        }
    }

    void close() {
        Bundle bundle = loader.updates.bundle();
        if (bundle != null && !thread.isShutdown()) {
            retire(bundle);
        }
        thread.shutdown();
    }

    private Outcome make(Object bucket, Encoder.Stop stop, long deadlineNs) throws Exception {
        Bundle bundle = loader.updates.bundle();
        long nowMs = clock.getAsLong();
        if (bucket == null) {
            return Outcome.none(EdgeReason.USER_CHANGED);
        }
        if (bundle == null) {
            return Outcome.none(EdgeReason.NOT_LOADED);
        }
        if (bundle.content.tooOld(nowMs)) {
            return Outcome.none(EdgeReason.TOO_OLD);
        }
        List<KnownEvent> events = visit.events();
        int number = bundle.content.bucket(bucket);
        if (events.isEmpty()) {
            return Outcome.made(EdgeReason.NO_EVENTS, bundle.content, bundle.defaultRows(number));
        }
        long leftNs = deadlineNs - System.nanoTime();
        if (leftNs <= 0 || !pace.allows(leftNs)) {
            return Outcome.none(EdgeReason.TOO_LATE);
        }
        long begunNs = System.nanoTime();
        try {
            return encode(bundle, events, number, nowMs, stop);
        } finally {
            pace.add(System.nanoTime() - begunNs); // of one that was stopped, too: it would have taken longer
        }
    }

    private static Outcome encode(Bundle bundle, List<KnownEvent> events, int bucket, long nowMs, Encoder.Stop stop)
            throws Exception {
        Content content = bundle.content;
        Features features = new Features(events, content.localEvents, content.levels, bucket, nowMs);
        float[] rows = bundle.encoder.run(features, stop);
        if (rows.length != content.promptRows * content.width) {
            return Outcome.none(EdgeReason.BAD_SHAPE);
        }
        for (float value : rows) {
            if (!Float.isFinite(value)) {
                return Outcome.none(EdgeReason.NOT_FINITE);
            }
        }
        return Outcome.made(EdgeReason.OK, content, rows);
    }
}
