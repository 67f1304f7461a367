package beforehand.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpExchange;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.json.JSONObject;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** A bad bundle is refused with its reason and the present one stays; what is kept is used, what is new is fetched. */
class BundleTest {
    private static final JSONObject ONE = Vectors.promptCase("one");
    private static final String RELEASE = Vectors.PROMPT.getString("release");
    private static final Vectors.Site.Act GONE =
            (path, exchange) -> {
                exchange.close(); // no answer at all
                return true;
            };

    @TempDir Path folder;
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

    private Edge open(EdgeOptions options) {
        Edge edge = Edge.create(options);
        edges.add(edge);
        return edge;
    }

    private EdgeOptions options() {
        return Vectors.options(site.url(), () -> Vectors.NOW_MS);
    }

    private EdgeOptions cached() {
        return options().cacheDir(folder.resolve("cache").toFile());
    }

    @TestFactory
    Stream<DynamicTest> aFaultLeavesThePresentBundleInUse() {
        return Vectors.faults()
                .map(fault -> DynamicTest.dynamicTest(fault.getString("name"), () -> checkFault(fault)));
    }

    private static void checkFault(JSONObject fault) throws IOException {
        try (Vectors.Site site = new Vectors.Site();
                Edge edge = Edge.create(Vectors.options(site.url(), () -> Vectors.NOW_MS))) {
            assertEquals(RELEASE, Vectors.replay(edge, ONE).release);
            site.apply(fault);
            assertEquals(fault.getString("reason"), edge.refresh().word());
            Outcome made = Vectors.replay(edge, ONE);
            assertEquals(EdgeReason.OK, made.reason);
            assertEquals(fault.getString("release"), made.release);
        }
    }

    @Test
    void aFirstStartWithOnlyABadBundleIsNotLoaded() {
        site.apply(Vectors.fault("unknown_key"));
        Edge edge = open(options());
        edge.setUser("u1", 0);
        assertEquals(EdgeReason.NOT_LOADED, edge.prompt(Vectors.PATIENT_MS).reason);
        assertEquals(BundleReason.UNKNOWN_KEY, edge.status().update);
    }

    @Test
    void aVerifierThatKnowsNothingRefuses() {
        Edge edge = open(options().verifier((key, signature, message) -> false));
        assertEquals(BundleReason.BAD_SIGNATURE, edge.refresh());
    }

    @Test
    void aNewBundleFetchesOnlyTheFilesThatChanged() {
        Edge edge = open(options());
        Vectors.replay(edge, ONE);
        site.apply(Vectors.fault("ok"));
        site.asked.clear();
        assertEquals(BundleReason.OK, edge.refresh());
        assertEquals(List.of("current.json", "00000000000000b1/manifest.json"), site.asked);
    }

    @Test
    void aTailShardIsFetchedWhenAnItemOfItIsMetOnce() {
        Edge edge = open(options());
        edge.setUser("u1", 0);
        edge.warm();
        edge.settle(Vectors.PATIENT_MS);
        assertEquals(List.of("0.bin"), shardsAsked());
        for (int i = 0; i < 60; i++) {
            edge.track(new EdgeEvent("e" + i, null, String.format("item-%03d", i), Kind.CLICK, Vectors.NOW_MS));
        }
        assertTrue(edge.settle(Vectors.PATIENT_MS));
        assertEquals(0, edge.status().pending);
        assertFalse(edge.status().events.containsKey(EdgeReason.UNKNOWN_ITEM));
        assertTrue(shardsAsked().size() > 9, "more than are kept in memory");
        assertEquals(shardsAsked().size(), shardsAsked().stream().distinct().count());
    }

    private List<String> shardsAsked() {
        return site.asked.stream()
                .filter(path -> path.contains("codes/"))
                .map(path -> path.substring(path.lastIndexOf('/') + 1))
                .sorted()
                .collect(Collectors.toList());
    }

    @Test
    void aShardThatDoesNotComeLeavesItsEventsOut() {
        Edge edge = open(options());
        edge.warm();
        edge.settle(Vectors.PATIENT_MS);
        site.act = GONE;
        edge.setUser("u1", 0);
        for (int i = 0; i < 60; i++) {
            edge.track(new EdgeEvent("e" + i, null, String.format("item-%03d", i), Kind.CLICK, Vectors.NOW_MS));
        }
        assertTrue(edge.settle(Vectors.PATIENT_MS));
        assertEquals(0, edge.status().pending);
        assertEquals(EdgeReason.OK, edge.prompt(Vectors.PATIENT_MS).reason);
    }

    @Test
    void theKeptBundleServesThoughTheServerIsGone() {
        Vectors.replay(open(cached()), ONE);
        site.act = GONE;
        Edge edge = open(cached());
        assertEquals(RELEASE, Vectors.replay(edge, ONE).release);
        assertEquals(BundleReason.UNREACHABLE, edge.status().update);
        assertEquals(0, edge.status().fetchedBytes);
    }

    @Test
    void aKeptFileThatWasChangedIsFetchedAgain() throws IOException {
        Vectors.replay(open(cached()), ONE);
        for (File file : Objects.requireNonNull(folder.resolve("cache").toFile().listFiles())) {
            if (file.getName().startsWith("file-")) {
                Files.write(file.toPath(), new byte[] {1, 2, 3});
            }
        }
        assertEquals(EdgeReason.OK, Vectors.replay(open(cached()), ONE).reason);
    }

    @Test
    void aKeptManifestThatWasChangedIsNotBelieved() throws IOException {
        Vectors.replay(open(cached()), ONE);
        Path manifest = folder.resolve("cache/manifest");
        Files.write(manifest, Arrays.copyOf(Files.readAllBytes(manifest), 100));
        site.act = GONE;
        Edge edge = open(cached());
        edge.setUser("u1", 0);
        assertEquals(EdgeReason.NOT_LOADED, edge.prompt(Vectors.PATIENT_MS).reason);
    }

    @Test
    void aKeptBundlePastItsAgeIsTooOldAndNotDeleted() {
        Vectors.replay(open(cached()), ONE);
        site.act = GONE;
        Edge edge = open(cached().clock(() -> Vectors.NOW_MS + 20L * 365 * 86_400_000));
        edge.setUser("u1", 0);
        assertEquals(EdgeReason.TOO_OLD, edge.prompt(Vectors.PATIENT_MS).reason);
        assertTrue(Files.exists(folder.resolve("cache/manifest")));
    }

    @Test
    void anOlderPointerIsNotFollowedAfterARestartEither() {
        Vectors.replay(open(cached()), ONE);
        site.apply(Vectors.fault("not_newer"));
        Edge edge = open(cached());
        assertEquals(BundleReason.NOT_NEWER, edge.refresh());
        assertEquals(RELEASE, edge.status().release);
    }

    @Test
    void filesOfAnEarlierBundleAreDropped() throws IOException {
        Files.createDirectories(folder.resolve("cache"));
        Files.write(folder.resolve("cache/file-0123"), new byte[1]);
        Vectors.replay(open(cached()), ONE);
        assertFalse(Files.exists(folder.resolve("cache/file-0123")));
    }

    @Test
    void aFolderThatCantBeWrittenIsToldAndTheBundleWorks() throws IOException {
        Files.write(folder.resolve("no-folder"), new byte[1]);
        Edge edge = open(options().cacheDir(folder.resolve("no-folder").toFile()));
        assertEquals(EdgeReason.OK, Vectors.replay(edge, ONE).reason);
        assertTrue(edge.status().cacheFull);
    }

    @Test
    void nothingOfAUserIsStored() throws IOException {
        Edge edge = open(cached());
        edge.setUser("somebody-unmistakable", "55+|high");
        edge.track(new EdgeEvent("event-unmistakable", null, "item-000", Kind.CLICK, Vectors.NOW_MS));
        edge.settle(Vectors.PATIENT_MS);
        edge.prompt(Vectors.PATIENT_MS);
        for (File file : Objects.requireNonNull(folder.resolve("cache").toFile().listFiles())) {
            String all = file.getName() + new String(Files.readAllBytes(file.toPath()), StandardCharsets.ISO_8859_1);
            assertFalse(all.contains("unmistakable") || all.contains("item-000"), file.getName());
        }
    }

    @Test
    void aServerErrorIsAReason() {
        site.act =
                (path, exchange) -> {
                    exchange.sendResponseHeaders(500, -1);
                    exchange.close();
                    return true;
                };
        assertEquals(BundleReason.HTTP_ERROR, open(options()).refresh());
    }

    @Test
    void aServerThatHangsIsTimedOutAndTheFirstCallIsBackWithinItsLimit() {
        site.act = (path, exchange) -> true;
        Edge edge = open(options().fetchTimeoutMs(6000));
        edge.setUser("u1", 0);
        assertEquals(EdgeReason.NOT_LOADED, edge.prompt(5).reason);
        assertEquals(null, edge.status().update, "it did not wait for the fetch");
        edge.settle(Vectors.PATIENT_MS);
        assertEquals(BundleReason.TIMED_OUT, edge.status().update);
    }

    @Test
    void aSlowDripIsTimedOut() {
        site.act = (path, exchange) -> path.endsWith("model.onnx") && drip(exchange);
        Edge edge = open(options().fetchTimeoutMs(300));
        assertEquals(BundleReason.TIMED_OUT, edge.refresh());
    }

    private static boolean drip(HttpExchange exchange) throws IOException {
        exchange.sendResponseHeaders(200, 0);
        try (OutputStream body = exchange.getResponseBody()) {
            for (int i = 0; i < 100; i++) {
                body.write(1);
                body.flush();
                Thread.sleep(50);
            }
        } catch (InterruptedException | IOException e) {
            exchange.close(); // the client has left, or the test is over
        }
        return true;
    }

    @Test
    void aFileWithoutEndIsCutOff() {
        site.act = (path, exchange) -> path.endsWith("defaults.bin") && pour(exchange);
        assertEquals(BundleReason.TOO_LARGE, open(options()).refresh());
    }

    private static boolean pour(HttpExchange exchange) throws IOException {
        exchange.sendResponseHeaders(200, 0);
        try (OutputStream body = exchange.getResponseBody()) {
            for (int i = 0; i < 10_000; i++) {
                body.write(new byte[65_536]);
            }
        } catch (IOException e) {
            exchange.close(); // the client has left
        }
        return true;
    }

    @Test
    void itIsAskedAgainAndThenServes() {
        site.act = GONE;
        Edge edge = open(options());
        assertEquals(BundleReason.UNREACHABLE, edge.refresh());
        site.act = (path, exchange) -> false;
        assertEquals(BundleReason.OK, edge.refresh());
        assertEquals(EdgeReason.OK, Vectors.replay(edge, ONE).reason);
    }
}
