package beforehand.edge;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The shared vectors, and a server of their bundle with faults. */
final class Vectors {
    static final Path FOLDER = Path.of(System.getProperty("vectors", "../vectors"));
    static final JSONObject PROMPT = new JSONObject(read("prompt"));
    static final JSONObject REASONS = new JSONObject(read("reasons"));
    static final String KEY = REASONS.getJSONArray("keys").getString(0);
    static final String USER = "vector-user";
    static final long NOW_MS = REASONS.getLong("now_ms");
    static final long PATIENT_MS = 60_000;

    private Vectors() {}

    static String read(String name) {
        try {
            return Files.readString(FOLDER.resolve(name + ".json"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Stream<JSONObject> objects(JSONArray given) {
        return IntStream.range(0, given.length()).mapToObj(given::getJSONObject);
    }

    static JSONObject promptCase(String name) {
        return objects(PROMPT.getJSONArray("cases")).filter(one -> one.getString("name").equals(name)).findFirst().get();
    }

    static Stream<JSONObject> faults() {
        return objects(new JSONArray(read("faults")));
    }

    static JSONObject fault(String reason) {
        return faults().filter(fault -> fault.getString("reason").equals(reason)).findFirst().get();
    }

    static EdgeOptions options(String url, LongSupplier clock) {
        return EdgeOptions.of(url, KEY).consent(true).appVersion("1.0").clock(clock);
    }

    static EdgeEvent event(JSONObject given) {
        return new EdgeEvent(
                given.getString("event_id"),
                given.getString("user_id"),
                given.getString("item_id"),
                Kind.valueOf(given.getString("kind").toUpperCase(java.util.Locale.ROOT)),
                given.getLong("at"));
    }

    /** One case of prompt.json. */
    static Outcome replay(Edge edge, JSONObject one) {
        edge.forget();
        if (one.get("bucket") instanceof String) {
            edge.setUser(USER, one.getString("bucket"));
        } else {
            edge.setUser(USER, one.getInt("bucket"));
        }
        objects(one.getJSONArray("events")).forEach(each -> edge.track(event(each)));
        edge.settle(PATIENT_MS);
        return edge.prompt(PATIENT_MS);
    }

    static double difference(float[] rows, JSONArray expected) {
        double worst = 0;
        int at = 0;
        for (int row = 0; row < expected.length(); row++) {
            JSONArray values = expected.getJSONArray(row);
            for (int i = 0; i < values.length(); i++) {
                worst = Math.max(worst, Math.abs(values.getDouble(i) - rows[at++]));
            }
        }
        return at == rows.length ? worst : Double.POSITIVE_INFINITY;
    }

    static List<Object> list(JSONArray given) {
        return given.toList();
    }

    /** Serves the tree of the vectors on the loopback. */
    static final class Site implements AutoCloseable {
        final List<String> asked = new CopyOnWriteArrayList<>();
        volatile Map<String, byte[]> changes = Map.of();
        volatile Act act = (path, exchange) -> false;
        private final HttpServer server;
        private final ExecutorService threads = Executors.newCachedThreadPool();

        /** Answers in the server's place when it returns true. */
        interface Act {
            boolean answer(String path, HttpExchange exchange) throws IOException;
        }

        Site() throws IOException {
            server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
            server.setExecutor(threads);
            server.createContext("/v1/edge/", this::serve);
            server.start();
        }

        String url() {
            return "http://127.0.0.1:" + server.getAddress().getPort() + "/v1/edge";
        }

        /** Apply a fault: its bytes by path, an empty optional of them when the file is missing. */
        void apply(JSONObject fault) {
            Map<String, byte[]> all = new HashMap<>();
            JSONObject files = fault.getJSONObject("files");
            for (String path : files.keySet()) {
                all.put(path, files.isNull(path) ? null : Base64.getDecoder().decode(files.getString(path)));
            }
            changes = all;
        }

        private void serve(HttpExchange exchange) throws IOException {
            String path = exchange.getRequestURI().getPath().substring("/v1/edge/".length());
            asked.add(path);
            if (act.answer(path, exchange)) {
                return;
            }
            Path file = FOLDER.resolve("bundle").resolve(path);
            byte[] bytes = changes.containsKey(path) ? changes.get(path) : null;
            if (!changes.containsKey(path) && Files.exists(file)) {
                bytes = Files.readAllBytes(file);
            }
            exchange.sendResponseHeaders(bytes == null ? 404 : 200, bytes == null || bytes.length == 0 ? -1 : bytes.length);
            if (bytes != null && bytes.length > 0) {
                exchange.getResponseBody().write(bytes);
            }
            exchange.close();
        }

        @Override
        public void close() {
            server.stop(0);
            threads.shutdownNow();
        }
    }

    static List<Rollout.Offer> offers(JSONArray given) throws JSONException {
        return objects(given)
                .map(o -> new Rollout.Offer(o.getString("id"), o.getDouble("share"), o.getString("min_app")))
                .collect(Collectors.toList());
    }
}
