package beforehand.edge;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A bundle, verified and loaded; its tail shards come when they are asked for. */
final class Bundle {
    private static final int MAX_TAIL_SHARDS = 8;
    private static final String DEFAULTS = "defaults.bin";

    final Content content;
    final Encoder encoder;
    private final FloatBuffer defaults;
    private final Shard head;
    private final Map<Integer, Shard> tail =
            new LinkedHashMap<>() {
                private static final long serialVersionUID = 1L;

                @Override
                protected boolean removeEldestEntry(Map.Entry<Integer, Shard> oldest) {
                    return size() > MAX_TAIL_SHARDS;
                }
            };

    /** Fetches what is not kept, verifies everything, loads the graph. */
    Bundle(Source source, Content content) throws RefusedException {
        this.content = content;
        List<String> names = new ArrayList<>(List.of("model." + source.options.format, DEFAULTS, shardName(0)));
        long size = 0;
        for (String name : names) {
            size += content.file(name).numBytes;
        }
        if (size > source.options.maxBytes) {
            throw new RefusedException(BundleReason.TOO_LARGE, size + " bytes");
        }
        byte[] graph = source.file(content, names.get(0));
        defaults = checkedDefaults(source.file(content, DEFAULTS), content);
        head = new Shard(source.file(content, names.get(2)), content.levels);
        encoder = load(source.options, graph, content);
    }

    static String shardName(int number) {
        return "codes/" + number + ".bin";
    }

    /** What is known of an item's codes. */
    static final class Found {
        /** Null when the bundle lacks the item, or a shard must be loaded first. */
        final long[] codes;

        /** The shard that must be loaded before it is known whether the bundle has the item; 0 when it is known. */
        final int missingShard;

        private Found(long[] codes, int missingShard) {
            this.codes = codes;
            this.missingShard = missingShard;
        }
    }

    synchronized Found find(String itemId) {
        long hash = ItemHash.of(itemId);
        long[] codes = head.find(hash);
        int number = codes == null ? Shard.tail(hash, content.tailShards) : 0;
        Shard shard = tail.get(number);
        return number == 0 ? new Found(codes, 0) : shard == null ? new Found(null, number) : new Found(shard.find(hash), 0);
    }

    void loadTail(Source source, int number) throws RefusedException {
        Shard shard = new Shard(source.file(content, shardName(number)), content.levels);
        synchronized (this) {
            tail.put(number, shard);
        }
    }

    float[] defaultRows(int bucket) {
        float[] rows = new float[content.promptRows * content.width];
        for (int i = 0; i < rows.length; i++) {
            rows[i] = defaults.get(bucket * rows.length + i);
        }
        return rows;
    }

    private static Encoder load(EdgeOptions options, byte[] graph, Content content) throws RefusedException {
        if (!Rollout.atLeast(options.runtimeVersion(), content.minimumRuntime)) {
            throw new RefusedException(BundleReason.RUNTIME_TOO_OLD, "needs " + content.minimumRuntime);
        }
        try {
            return options.encoders.load(graph, content);
        } catch (Exception | LinkageError e) { // the runtime's own error, or none of its native parts for this device
            throw new RefusedException(BundleReason.DOES_NOT_LOAD, String.valueOf(e.getMessage()));
        }
    }

    private static FloatBuffer checkedDefaults(byte[] raw, Content content) throws RefusedException {
        if (raw.length != 4L * content.numBuckets * content.promptRows * content.width) {
            throw RefusedException.corrupt("default rows of another shape");
        }
        FloatBuffer rows = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
        for (int i = 0; i < rows.limit(); i++) {
            if (!Float.isFinite(rows.get(i))) {
                throw RefusedException.corrupt("default rows that are not finite");
            }
        }
        return rows;
    }
}
