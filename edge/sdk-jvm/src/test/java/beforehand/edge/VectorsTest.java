package beforehand.edge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.json.JSONArray;
import org.json.JSONObject;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The numbers are those of the Python reference. */
class VectorsTest {
    @Test
    void reasonsAreTheSameWords() {
        List<String> edge = Arrays.stream(EdgeReason.values()).map(EdgeReason::word).collect(Collectors.toList());
        List<String> bundle = Arrays.stream(BundleReason.values()).map(BundleReason::word).collect(Collectors.toList());
        assertEquals(Vectors.REASONS.getJSONArray("edge").toList(), edge);
        assertEquals(Vectors.REASONS.getJSONArray("bundle").toList(), bundle);
    }

    @Test
    void hashesAndCodesAreTheSame() throws Exception {
        JSONObject codes = new JSONObject(Vectors.read("codes"));
        JSONObject hashes = codes.getJSONObject("hashes");
        for (String id : hashes.keySet()) {
            assertEquals(hashes.getString(id), String.format("%016x", ItemHash.of(id)), id);
        }
        List<Shard> shards = shards();
        JSONObject expected = codes.getJSONObject("codes");
        for (String id : expected.keySet()) {
            assertArrayEquals(expected.isNull(id) ? null : longs(expected.getJSONArray(id)), find(shards, id), id);
        }
    }

    @Test
    void rollOutsChooseTheSame() {
        Vectors.objects(new JSONArray(Vectors.read("rollout"))).forEach(VectorsTest::checkRollout);
    }

    private static void checkRollout(JSONObject one) {
        List<Rollout.Offer> offers = Vectors.offers(one.getJSONArray("offers"));
        Rollout.Offer chosen = Rollout.choose(offers, one.getString("seed"), one.getString("app"));
        assertEquals(one.isNull("chosen") ? null : one.getString("chosen"), chosen == null ? null : chosen.id, one::toString);
        String first = offers.isEmpty() ? "" : offers.get(0).id;
        assertEquals(one.getDouble("place"), Rollout.place(one.getString("seed"), first));
    }

    @TestFactory
    Stream<DynamicTest> embeddings() {
        return Stream.of("onnx", "ort")
                .flatMap(
                        format ->
                                cases().map(
                                        one ->
                                                DynamicTest.dynamicTest(
                                                        format + " " + one.getString("name"), () -> check(format, one))));
    }

    private static void check(String format, JSONObject one) throws Exception {
        try (Vectors.Site site = new Vectors.Site();
                Edge edge = Edge.create(Vectors.options(site.url(), () -> one.getLong("now_ms")).format(format))) {
            Outcome made = Vectors.replay(edge, one);
            EdgeReason expected = one.getJSONArray("used").isEmpty() ? EdgeReason.NO_EVENTS : EdgeReason.OK;
            assertEquals(expected, made.reason);
            double difference = Vectors.difference(made.rows(), one.getJSONArray("prompt"));
            assertTrue(difference <= Vectors.PROMPT.getDouble("tolerance"), () -> "differs by " + difference);
            assertEquals(Vectors.PROMPT.getString("release"), made.release);
            long unknown = edge.status().events.getOrDefault(EdgeReason.UNKNOWN_ITEM, 0L);
            assertEquals(one.getLong("num_unknown"), unknown);
        }
    }

    @TestFactory
    Stream<DynamicTest> inputs() {
        return cases().map(one -> DynamicTest.dynamicTest(one.getString("name"), () -> checkInputs(one)));
    }

    private static void checkInputs(JSONObject one) throws Exception {
        Content content = content();
        List<Shard> shards = shards();
        List<KnownEvent> known = new ArrayList<>();
        for (Object each : one.getJSONArray("events")) {
            EdgeEvent event = Vectors.event((JSONObject) each);
            long[] codes = find(shards, event.itemId);
            if (codes != null) {
                known.add(new KnownEvent(event, known.size(), codes));
            }
        }
        List<KnownEvent> kept = KnownEvent.newest(known, content.localEvents);
        List<String> used = kept.stream().map(each -> each.event.eventId).collect(Collectors.toList());
        assertEquals(one.getJSONArray("used").toList(), used);
        Features made =
                new Features(
                        kept, content.localEvents, content.levels, one.getInt("graph_bucket"), one.getLong("now_ms"));
        List<Long> codes = new ArrayList<>();
        one.getJSONArray("codes").forEach(row -> LongStream.of(longs((JSONArray) row)).forEach(codes::add));
        assertEquals(codes, LongStream.of(made.codes).boxed().collect(Collectors.toList()));
        assertArrayEquals(longs(one.getJSONArray("kind")), made.kind);
        assertArrayEquals(floats(one.getJSONArray("age")), made.age, 1e-6f);
        assertArrayEquals(floats(one.getJSONArray("clock")), made.clock, 1e-6f);
    }

    private static Stream<JSONObject> cases() {
        return Vectors.objects(Vectors.PROMPT.getJSONArray("cases"));
    }

    private static Content content() throws Exception {
        String file = Vectors.PROMPT.getString("bundle") + "/manifest.json";
        byte[] raw = Files.readAllBytes(Vectors.FOLDER.resolve("bundle").resolve(file));
        return new Content(new Envelopes(List.of(Vectors.KEY), Verifier.platform()).open(raw));
    }

    private static List<Shard> shards() throws Exception {
        Content content = content();
        List<Shard> shards = new ArrayList<>();
        for (int number = 0; number <= content.tailShards; number++) {
            String file = content.id + "/" + Bundle.shardName(number);
            byte[] raw = Files.readAllBytes(Vectors.FOLDER.resolve("bundle").resolve(file));
            shards.add(new Shard(raw, content.levels));
        }
        return shards;
    }

    private static long[] find(List<Shard> shards, String id) {
        long hash = ItemHash.of(id);
        long[] found = shards.get(0).find(hash);
        return found == null ? shards.get(Shard.tail(hash, shards.size() - 1)).find(hash) : found;
    }

    private static long[] longs(JSONArray given) {
        return given.toList().stream().mapToLong(each -> ((Number) each).longValue()).toArray();
    }

    private static float[] floats(JSONArray given) {
        float[] values = new float[given.length()];
        for (int i = 0; i < values.length; i++) {
            values[i] = given.getFloat(i);
        }
        return values;
    }
}
