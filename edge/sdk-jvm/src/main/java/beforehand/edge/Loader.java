package beforehand.edge;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/** The thread that fetches and loads: the kept bundle first, then looks for new ones, and shards as they are met. */
final class Loader {
    final Updates updates;
    private final Source source;
    private final Visit visit;
    private final BooleanSupplier allowed;
    private final ScheduledThreadPoolExecutor thread;
    private final CompletableFuture<Void> started = new CompletableFuture<>();
    private final AtomicInteger busy = new AtomicInteger();
    private boolean begun;
    private ScheduledFuture<?> next;

    /** @param allowed whether the user has agreed to be fetched for */
    Loader(Source source, Visit visit, BooleanSupplier allowed, java.util.function.Consumer<Bundle> retire) {
        this.source = source;
        this.visit = visit;
        this.allowed = allowed;
        thread = new ScheduledThreadPoolExecutor(1, task -> Edge.daemon(task, "edge-loader"));
        updates =
                new Updates(
                        source,
                        (bundle, before) -> {
                            visit.rebase(bundle).forEach(this::need);
                            if (before != null) {
                                retire.accept(before);
                            }
                        });
    }

    /** Begin, once. */
    synchronized void begin() {
        if (!begun) {
            begun = true;
            run(
                    () -> {
                        updates.restore();
                        if (updates.bundle() != null) {
                            started.complete(null);
                        }
                        look();
                    });
        }
    }

    /** Done when there is a bundle, or the first look found none. */
    CompletableFuture<Void> started() {
        return started;
    }

    /** Look for a bundle now, on the loader's thread. */
    CompletableFuture<BundleReason> refresh() {
        CompletableFuture<BundleReason> said = new CompletableFuture<>();
        if (!run(() -> said.complete(look()))) {
            said.complete(BundleReason.TIMED_OUT);
        }
        return said;
    }

    /** Fetch a tail shard. */
    void need(int shard) {
        Bundle bundle = updates.bundle();
        run(
                () -> {
                    try {
                        bundle.loadTail(source, shard);
                    } catch (RefusedException e) {
                        visit.giveUp(shard); // the next event of it asks again
                        return;
                    }
                    visit.arrived();
                });
    }

    boolean idle() {
        return busy.get() == 0;
    }

    void close() {
        thread.shutdownNow();
        started.complete(null);
    }

    private BundleReason look() {
        BundleReason said = allowed.getAsBoolean() ? updates.look() : BundleReason.NO_OFFER;
        started.complete(null);
        try {
            if (next != null) {
                next.cancel(false);
            }
            next = thread.schedule(this::look, updates.nextMs(), TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            // it was closed meanwhile
        }
        return said;
    }

    private boolean run(Runnable task) {
        busy.incrementAndGet();
        try {
            thread.execute(
                    () -> {
                        try {
                            task.run();
                        } finally {
                            busy.decrementAndGet();
                        }
                    });
            return true;
        } catch (RejectedExecutionException e) {
            busy.decrementAndGet();
            return false;
        }
    }
}
