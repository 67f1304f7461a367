package beforehand.edge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.json.JSONObject;
import org.junit.jupiter.api.Test;

/**
 * Measures the SDK on vectors of any bundle: {@code mvn -q test -Dtest=BenchRun -Dvectors=FOLDER -Dbench.out=FILE}. Its
 * name keeps it out of an ordinary run.
 */
class BenchRun {
    private static final int RUNS = Integer.getInteger("bench.runs", 500);
    private long nowMs;

    @Test
    void measure() throws IOException {
        List<JSONObject> cases =
                Vectors.objects(Vectors.PROMPT.getJSONArray("cases"))
                        .filter(one -> !one.getJSONArray("used").isEmpty())
                        .collect(Collectors.toList());
        double[] tookMs = new double[RUNS];
        double difference = 0;
        try (Vectors.Site site = new Vectors.Site()) {
            long begun = System.nanoTime();
            Edge edge = Edge.create(Vectors.options(site.url(), () -> nowMs));
            nowMs = cases.get(0).getLong("now_ms");
            Vectors.replay(edge, cases.get(0));
            double coldMs = (System.nanoTime() - begun) / 1e6;
            for (int run = -RUNS; run < RUNS; run++) { // the first half warms the JVM
                JSONObject one = cases.get(Math.floorMod(run, cases.size()));
                nowMs = one.getLong("now_ms");
                Vectors.replay(edge, one);
                long asked = System.nanoTime();
                Outcome made = edge.prompt(Vectors.PATIENT_MS);
                tookMs[Math.max(run, 0)] = (System.nanoTime() - asked) / 1e6;
                difference = Math.max(difference, Vectors.difference(made.rows(), one.getJSONArray("prompt")));
            }
            edge.close();
            write(tookMs, coldMs, difference);
        }
    }

    private static void write(double[] tookMs, double coldMs, double difference) throws IOException {
        Arrays.sort(tookMs);
        JSONObject encode = new JSONObject().put("p50", tookMs[RUNS / 2]).put("p99", tookMs[RUNS * 99 / 100]);
        JSONObject result =
                new JSONObject()
                        .put("runtime", "jvm")
                        .put("bundle", Vectors.PROMPT.getString("bundle"))
                        .put("encode_ms", encode)
                        .put("cold_start_ms", coldMs)
                        .put("max_abs_difference", difference);
        Files.writeString(Path.of(System.getProperty("bench.out", "target/bench.json")), result + "\n");
    }
}
