package beforehand.edge;

import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;

/** onnxruntime on the CPU, one thread. The same classes are in {@code onnxruntime-android}. */
final class OrtEncoder implements Encoder {
    private final OrtEnvironment environment = OrtEnvironment.getEnvironment();
    private final OrtSession session;
    private final Content content;

    OrtEncoder(byte[] graph, Content content) throws OrtException {
        this.content = content;
        try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
            options.setIntraOpNumThreads(1);
            options.setInterOpNumThreads(1);
            options.setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL);
            session = environment.createSession(graph, options);
        }
    }

    /** Of the runtime that is installed. */
    static String version() {
        return OrtEnvironment.getEnvironment().getVersion();
    }

    @Override
    public float[] run(Features features, Stop stop) throws OrtException {
        Map<String, OnnxTensor> inputs = new LinkedHashMap<>();
        try (OrtSession.RunOptions options = new OrtSession.RunOptions()) {
            fill(inputs, features);
            if (!stop.attach(() -> terminate(options))) {
                throw new CancellationException();
            }
            try (OrtSession.Result result = session.run(inputs, options)) {
                OnnxTensor prompt = (OnnxTensor) result.get("prompt").orElseThrow(IllegalStateException::new);
                FloatBuffer rows = prompt.getFloatBuffer();
                float[] copied = new float[rows.remaining()];
                rows.get(copied);
                return copied;
            } finally {
                stop.detach();
            }
        } finally {
            inputs.values().forEach(OnnxTensor::close);
        }
    }

    @Override
    public void close() {
        try {
            session.close();
        } catch (OrtException e) {
            // nothing is left to free then
        }
    }

    private void fill(Map<String, OnnxTensor> inputs, Features features) throws OrtException {
        long events = content.localEvents;
        inputs.put("bucket", longs(features.bucket, 1));
        inputs.put("clock", floats(features.clock, 1, 4));
        inputs.put("codes", longs(features.codes, 1, events, content.levels));
        inputs.put("kind", longs(features.kind, 1, events));
        inputs.put("age", floats(features.age, 1, events));
    }

    private OnnxTensor longs(long[] values, long... shape) throws OrtException {
        return OnnxTensor.createTensor(environment, LongBuffer.wrap(values), shape);
    }

    private OnnxTensor floats(float[] values, long... shape) throws OrtException {
        return OnnxTensor.createTensor(environment, FloatBuffer.wrap(values), shape);
    }

    private static void terminate(OrtSession.RunOptions options) {
        try {
            options.setTerminate(true);
        } catch (OrtException e) {
            // the run ends by itself then, and its result is not used
        }
    }
}
