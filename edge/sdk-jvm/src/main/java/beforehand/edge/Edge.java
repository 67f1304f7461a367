package beforehand.edge;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * What an app holds: tracks local events, makes the prompt embedding in time. Its methods may be called from any thread;
 * none throws, none outstays its time limit. {@link #prompt} waits: call it off the UI thread, or use {@link #promptAsync}.
 */
public final class Edge implements AutoCloseable {
    private static final long MAX_LIMIT_MS = 60_000;

    private final Source source;
    private final Visit visit = new Visit();
    private final Loader loader;
    private final Prompter prompter;
    private final ExecutorService waiting = Executors.newCachedThreadPool(task -> daemon(task, "edge-waiting"));
    private final Counts events = new Counts();
    private final Counts prompts = new Counts();

    private String userId;
    private Object bucket = 0;
    private long visitNumber;
    private volatile boolean consent;
    private Outcome made;
    private long madeAtNs;

    private Edge(EdgeOptions options) {
        consent = options.consent;
        source = new Source(options);
        loader = new Loader(source, visit, () -> consent, this::retire);
        prompter = new Prompter(loader, visit, options.clock);
    }

    /**
     * @throws IllegalArgumentException when a key is not 32 bytes in base64: a mistake in the app, found at the first run
     */
    public static Edge create(EdgeOptions options) {
        return new Edge(options);
    }

    /** Sign a user in, with the name of a profile bucket. Another user's events and prompt are dropped. */
    public void setUser(String userId, String bucket) {
        signIn(userId, bucket);
    }

    /** Sign a user in, with the number of a profile bucket (0: everybody). */
    public void setUser(String userId, int bucket) {
        signIn(userId, bucket);
    }

    /** Drop the user, the events and the prompt. Nothing of a user is ever stored. */
    public synchronized void forget() {
        userId = null;
        bucket = 0;
        dropAll();
    }

    /** Give or withdraw consent; withdrawing drops the events and the prompt. */
    public synchronized void setConsent(boolean given) {
        consent = given;
        if (!given) {
            dropAll();
        }
    }

    /** Keep an event: OK, or why it was dropped. An item that the bundle lacks may be found out later, and is counted. */
    public EdgeReason track(EdgeEvent event) {
        return events.add(judge(event));
    }

    /** Begin to load, in the background. */
    public void warm() {
        if (consent) {
            loader.begin();
        }
    }

    /** The embedding of the present events, within the limit, loading included. */
    public Outcome prompt(long timeLimitMs) {
        long begunNs = System.nanoTime();
        long limitNs = TimeUnit.MILLISECONDS.toNanos(Math.min(timeLimitMs, MAX_LIMIT_MS));
        long number;
        synchronized (this) {
            number = visitNumber;
        }
        Outcome outcome = consent ? attempt(begunNs, limitNs, number) : Outcome.none(EdgeReason.NO_CONSENT);
        long tookNs = System.nanoTime() - begunNs;
        if (outcome.ok() && tookNs > limitNs) {
            outcome = Outcome.none(EdgeReason.TOO_LATE);
        }
        return keep(outcome.aged(TimeUnit.NANOSECONDS.toMillis(tookNs)), number, begunNs);
    }

    /** {@link #prompt} on another thread; the future is done within the limit, and never exceptionally. */
    public CompletableFuture<Outcome> promptAsync(long timeLimitMs) {
        try {
            return CompletableFuture.supplyAsync(() -> prompt(timeLimitMs), waiting);
        } catch (RejectedExecutionException e) {
            return CompletableFuture.completedFuture(Outcome.none(EdgeReason.NOT_LOADED));
        }
    }

    /** The last embedding of this user, its age brought up to now. */
    public synchronized Outcome latest() {
        if (made == null) {
            return Outcome.none(EdgeReason.NOT_MADE);
        }
        long ageMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - madeAtNs);
        Bundle bundle = loader.updates.bundle();
        boolean old = bundle == null || ageMs > bundle.content.promptUsableForS * 1000;
        return old ? Outcome.none(EdgeReason.TOO_OLD) : made.aged(ageMs);
    }

    /** A copy of {@code request} with the last embedding as {@code prompt}, or as it is when there is none to send. */
    public synchronized Map<String, Object> attach(Map<String, ?> request) {
        Map<String, Object> whole = new HashMap<>(request == null ? Map.of() : request);
        Object asked = whole.get("user_id");
        Outcome latest = latest();
        // A request for somebody else never carries this user's prompt.
        if (latest.ok() && (asked == null || asked.equals(userId))) {
            Map<String, Object> prompt = new HashMap<>();
            prompt.put("release", latest.release);
            prompt.put("rows", base64(latest.rows()));
            prompt.put("num_rows", latest.numRows);
            prompt.put("age_ms", latest.ageMs);
            whole.put("prompt", prompt);
        }
        return whole;
    }

    /** Look for a new bundle now; waits a minute at most. */
    public BundleReason refresh() {
        if (!consent) {
            return BundleReason.NO_OFFER;
        }
        loader.begin();
        try {
            return loader.refresh().get(MAX_LIMIT_MS, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return BundleReason.TIMED_OUT;
        } catch (ExecutionException | TimeoutException e) {
            return BundleReason.TIMED_OUT;
        }
    }

    /** What is loaded, and how often each reason was given. */
    public Status status() {
        Bundle bundle = loader.updates.bundle();
        Counts all = events.with(EdgeReason.UNKNOWN_ITEM, visit.unknown());
        Content content = bundle == null ? null : bundle.content;
        return new Status(content, loader.updates, source, visit.pending(), prompter.usualNs(), all, prompts);
    }

    /** Wait until nothing is being loaded any more; whether that came within the limit. */
    public boolean settle(long timeLimitMs) {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Math.min(timeLimitMs, MAX_LIMIT_MS));
        while (!loader.idle() && System.nanoTime() < end) {
            try {
                Thread.sleep(2);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return false;
            }
        }
        return loader.idle();
    }

    /** End the threads; nothing works afterwards. */
    @Override
    public void close() {
        loader.close();
        prompter.close();
        waiting.shutdown();
    }

    static Thread daemon(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    private void retire(Bundle bundle) {
        prompter.retire(bundle);
    }

    private synchronized void signIn(String id, Object given) {
        if (!EdgeEvent.isId(id)) {
            forget();
            return;
        }
        boolean same = id.equals(userId);
        userId = id;
        bucket = given == null ? 0 : given;
        made = null;
        if (!same) {
            dropAll();
        }
    }

    private void dropAll() {
        made = null;
        visitNumber++;
        visit.clear();
    }

    private synchronized EdgeReason judge(EdgeEvent event) {
        if (!consent) {
            return EdgeReason.NO_CONSENT;
        }
        if (event == null || !event.wellFormed()) {
            return EdgeReason.BAD_EVENT;
        }
        if (userId == null) {
            return EdgeReason.NO_USER;
        }
        if (event.userId != null && !event.userId.equals(userId)) {
            return EdgeReason.OTHER_USER;
        }
        loader.begin();
        int missing = visit.track(event);
        if (missing != 0) {
            loader.need(missing);
        }
        return EdgeReason.OK;
    }

    private Outcome attempt(long begunNs, long limitNs, long number) {
        if (limitNs <= 0) {
            return Outcome.none(EdgeReason.TOO_LATE);
        }
        loader.begin();
        return prompter.attempt(begunNs + limitNs, () -> bucketOf(number));
    }

    /** The bucket of visit {@code number}, or null when another has begun. */
    private synchronized Object bucketOf(long number) {
        return number == visitNumber ? bucket : null;
    }

    private synchronized Outcome keep(Outcome outcome, long number, long begunNs) {
        Outcome kept = outcome;
        if (outcome.ok() && number != visitNumber) {
            kept = Outcome.none(consent ? EdgeReason.USER_CHANGED : EdgeReason.NO_CONSENT);
        }
        prompts.add(kept.reason);
        if (kept.ok()) {
            made = kept;
            madeAtNs = begunNs;
        }
        return kept;
    }

    private static String base64(float[] rows) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * rows.length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asFloatBuffer().put(rows);
        return Base64.getEncoder().encodeToString(bytes.array());
    }
}
