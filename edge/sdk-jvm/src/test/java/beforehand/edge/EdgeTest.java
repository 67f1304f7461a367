package beforehand.edge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What an app sees: consent, users, limits, reasons; never an error. */
class EdgeTest {
    private Vectors.Site site;
    private final List<Edge> edges = new ArrayList<>();

    @BeforeEach
    void begin() throws IOException {
        site = new Vectors.Site();
    }

    @AfterEach
    void end() {
        edges.forEach(Edge::close);
        site.close();
    }

    private EdgeOptions options() {
        return Vectors.options(site.url(), () -> Vectors.NOW_MS);
    }

    private Edge open(EdgeOptions options) {
        Edge edge = Edge.create(options);
        edges.add(edge);
        return edge;
    }

    private Edge ready(EdgeOptions options) {
        Edge edge = open(options);
        edge.setUser("u1", 1);
        assertEquals(EdgeReason.OK, edge.track(event(1)));
        assertTrue(edge.settle(Vectors.PATIENT_MS));
        return edge;
    }

    private static EdgeEvent event(int number) {
        return new EdgeEvent(
                "e" + number, null, String.format("item-%03d", number % 60), Kind.CLICK, Vectors.NOW_MS - 1000L * number);
    }

    private static EdgeReason prompt(Edge edge) {
        return edge.prompt(Vectors.PATIENT_MS).reason;
    }

    /** What an encoder does in place of the graph. */
    private interface Answer {
        float[] run() throws Exception;
    }

    private EdgeOptions answering(Answer answer) {
        EdgeOptions options = options();
        options.encoders =
                (graph, content) ->
                        new Encoder() {
                            @Override
                            public float[] run(Features features, Stop stop) throws Exception {
                                return answer.run();
                            }

                            @Override
                            public void close() {}
                        };
        return options;
    }

    @Test
    void withoutConsentNothingIsFetchedKeptOrComputed() {
        Edge edge = open(options().consent(false));
        edge.setUser("u1", 0);
        edge.warm();
        assertEquals(EdgeReason.NO_CONSENT, edge.track(event(1)));
        assertEquals(EdgeReason.NO_CONSENT, prompt(edge));
        assertEquals(BundleReason.NO_OFFER, edge.refresh());
        assertEquals(List.of(), site.asked);
    }

    @Test
    void consentWithdrawnDropsEventsAndPrompt() {
        Edge edge = ready(options());
        assertEquals(EdgeReason.OK, prompt(edge));
        edge.setConsent(false);
        assertEquals(EdgeReason.NOT_MADE, edge.latest().reason);
        edge.setConsent(true);
        assertEquals(EdgeReason.NO_EVENTS, prompt(edge));
    }

    @Test
    void anotherUserGetsNothingOfTheOneBefore() {
        Edge edge = ready(options());
        float[] first = edge.prompt(Vectors.PATIENT_MS).rows();
        edge.setUser("u2", 1);
        assertEquals(EdgeReason.NOT_MADE, edge.latest().reason);
        Outcome second = edge.prompt(Vectors.PATIENT_MS);
        assertEquals(EdgeReason.NO_EVENTS, second.reason);
        assertFalse(java.util.Arrays.equals(first, second.rows()));
    }

    @Test
    void aUserWhoChangesWhileItRunsGetsNoResult() {
        Edge[] edge = new Edge[1];
        edge[0] =
                ready(
                        answering(
                                () -> {
                                    edge[0].setUser("u2", 1);
                                    return new float[16];
                                }));
        assertEquals(EdgeReason.USER_CHANGED, prompt(edge[0]));
        assertEquals(EdgeReason.NOT_MADE, edge[0].latest().reason);
    }

    @Test
    void consentWithdrawnWhileItRunsGivesNoResult() {
        Edge[] edge = new Edge[1];
        edge[0] =
                ready(
                        answering(
                                () -> {
                                    edge[0].setConsent(false);
                                    return new float[16];
                                }));
        assertEquals(EdgeReason.NO_CONSENT, prompt(edge[0]));
    }

    @Test
    void forgetDropsEverything() {
        Edge edge = ready(options());
        prompt(edge);
        edge.forget();
        assertEquals(EdgeReason.NOT_MADE, edge.latest().reason);
        assertEquals(EdgeReason.NO_USER, edge.track(event(2)));
        edge.setUser("u1", 1);
        assertEquals(EdgeReason.NO_EVENTS, prompt(edge));
    }

    @Test
    void theSameUserAgainKeepsTheEvents() {
        Edge edge = ready(options());
        float[] first = edge.prompt(Vectors.PATIENT_MS).rows();
        edge.setUser("u1", 2);
        assertEquals(EdgeReason.NOT_MADE, edge.latest().reason);
        Outcome second = edge.prompt(Vectors.PATIENT_MS);
        assertEquals(EdgeReason.OK, second.reason);
        assertFalse(java.util.Arrays.equals(first, second.rows()));
    }

    @Test
    void badEventsAreReasons() {
        Edge edge = ready(options());
        String lone = "\ud800";
        for (String id : new String[] {null, "", "a\nb", lone, "🧼".repeat(257)}) {
            assertEquals(EdgeReason.BAD_EVENT, edge.track(new EdgeEvent(id, null, "item-000", Kind.CART, Vectors.NOW_MS)));
            assertEquals(EdgeReason.BAD_EVENT, edge.track(new EdgeEvent("e", null, id, Kind.CART, Vectors.NOW_MS)));
        }
        assertEquals(EdgeReason.BAD_EVENT, edge.track(null));
        assertEquals(EdgeReason.BAD_EVENT, edge.track(new EdgeEvent("e", null, "i", null, Vectors.NOW_MS)));
        assertEquals(EdgeReason.BAD_EVENT, edge.track(new EdgeEvent("e", null, "i", Kind.CART, Vectors.NOW_MS / 1000)));
        assertEquals(EdgeReason.OTHER_USER, edge.track(new EdgeEvent("e", "u2", "i", Kind.CART, Vectors.NOW_MS)));
        String longest = "🧼".repeat(256);
        assertEquals(EdgeReason.OK, edge.track(new EdgeEvent(longest, null, "item-000", Kind.CART, Vectors.NOW_MS)));
    }

    @Test
    void attachAddsThePromptAsTheServiceTakesIt() {
        Edge edge = ready(options());
        Outcome made = edge.prompt(Vectors.PATIENT_MS);
        Map<String, Object> request = edge.attach(Map.of("user_id", "u1", "k", 20));
        assertEquals(20, request.get("k"));
        Map<?, ?> prompt = (Map<?, ?>) request.get("prompt");
        assertEquals(made.release, prompt.get("release"));
        byte[] raw = Base64.getDecoder().decode((String) prompt.get("rows"));
        float[] rows = new float[made.rows().length];
        ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(rows);
        assertArrayEquals(made.rows(), rows);
        assertFalse(edge.attach(Map.of("user_id", "u2")).containsKey("prompt"));
        assertEquals(Map.of(), ready(options()).attach(null));
    }

    @Test
    void aLimitThatLeavesNoTimeIsTooLate() {
        Edge edge = ready(options());
        assertEquals(EdgeReason.TOO_LATE, edge.prompt(0).reason);
        assertEquals(EdgeReason.TOO_LATE, edge.prompt(-1).reason);
        assertEquals(EdgeReason.OK, edge.prompt(Long.MAX_VALUE).reason);
    }

    @Test
    void aRunThatTakesTooLongIsTooLateAndTheNextOneWorks() throws Exception {
        CountDownLatch free = new CountDownLatch(1);
        AtomicInteger runs = new AtomicInteger();
        Edge edge =
                ready(
                        answering(
                                () -> {
                                    if (runs.incrementAndGet() == 1) {
                                        free.await(30, TimeUnit.SECONDS);
                                    }
                                    return new float[16];
                                }));
        assertEquals(EdgeReason.TOO_LATE, edge.prompt(15).reason);
        assertEquals(EdgeReason.NOT_MADE, edge.latest().reason);
        free.countDown();
        assertEquals(EdgeReason.OK, prompt(edge));
    }

    @Test
    void aDeviceThatIsTooSlowForTheLimitStopsTryingAndTriesOneInFive() {
        AtomicInteger runs = new AtomicInteger();
        Edge edge =
                ready(
                        answering(
                                () -> {
                                    runs.incrementAndGet();
                                    Thread.sleep(500);
                                    return new float[16];
                                }));
        for (int run = 0; run < 5; run++) {
            assertEquals(EdgeReason.OK, prompt(edge));
        }
        assertTrue(edge.status().usualMs > 250);
        for (int run = 0; run < 5; run++) {
            assertEquals(EdgeReason.TOO_LATE, edge.prompt(250).reason);
        }
        assertEquals(EdgeReason.OK, prompt(edge)); // and the one that was tried is over
        assertEquals(7, runs.get());
    }

    @Test
    void anAttemptStoppedBeforeItBeganDoesNotRun() {
        Encoder.Stop stop = new Encoder.Stop();
        stop.now();
        assertFalse(stop.attach(() -> {}));
    }

    @Test
    void anEncoderInTroubleIsAReason() {
        assertEquals(EdgeReason.BAD_SHAPE, prompt(ready(answering(() -> new float[3]))));
        float[] bad = new float[16];
        bad[7] = Float.NaN;
        assertEquals(EdgeReason.NOT_FINITE, prompt(ready(answering(() -> bad))));
        Answer broken =
                () -> {
                    throw new IllegalStateException("broken");
                };
        assertEquals(EdgeReason.ENCODE_FAILED, prompt(ready(answering(broken))));
    }

    @Test
    void promptsOfManyThreadsKeepCount() throws Exception {
        Edge edge = ready(options());
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread thread =
                    new Thread(
                            () -> {
                                for (int n = 0; n < 50; n++) {
                                    edge.track(event(n));
                                    prompt(edge);
                                }
                            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(Map.of(EdgeReason.OK, 200L), edge.status().prompts);
        assertEquals(201L, edge.status().events.get(EdgeReason.OK));
    }

    @Test
    void promptAsyncIsDoneWithinTheLimit() throws Exception {
        Edge edge = ready(options());
        assertEquals(EdgeReason.OK, edge.promptAsync(Vectors.PATIENT_MS).get(30, TimeUnit.SECONDS).reason);
        assertEquals(EdgeReason.TOO_LATE, edge.promptAsync(0).get(30, TimeUnit.SECONDS).reason);
    }

    @Test
    void afterCloseEverythingIsAReason() throws Exception {
        Edge edge = ready(options());
        edge.close();
        assertEquals(EdgeReason.NOT_LOADED, prompt(edge));
        assertEquals(EdgeReason.NOT_LOADED, edge.promptAsync(5).get(30, TimeUnit.SECONDS).reason);
        assertEquals(BundleReason.TIMED_OUT, edge.refresh());
        edge.track(event(2));
        edge.close();
    }

    @Test
    void aKeyThatIsNoneIsFoundAtTheFirstRun() {
        EdgeOptions bad = EdgeOptions.of(site.url(), "c2hvcnQ=");
        assertThrows(IllegalArgumentException.class, () -> Edge.create(bad));
    }
}
