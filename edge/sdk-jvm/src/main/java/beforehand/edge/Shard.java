package beforehand.edge;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** One shard of the code table, read in place (format: {@code edge/code_table.py}). */
final class Shard {
    private static final int HEADER_BYTES = 16;
    private static final int MAGIC = 0x31434842; // BHC1, little-endian

    private final ByteBuffer bytes;
    private final int levels;
    private final int count;
    private final int codeBytes;

    Shard(byte[] raw, int levels) throws RefusedException {
        bytes = ByteBuffer.wrap(raw).order(ByteOrder.LITTLE_ENDIAN);
        if (raw.length < HEADER_BYTES || bytes.getInt(0) != MAGIC) {
            throw RefusedException.corrupt("no shard");
        }
        this.levels = levels;
        codeBytes = bytes.get(5);
        count = bytes.getInt(8);
        long size = HEADER_BYTES + (long) count * (8 + (long) levels * codeBytes);
        if (bytes.get(4) != levels || codeBytes < 1 || codeBytes > 2 || count < 0 || raw.length != size) {
            throw RefusedException.corrupt("a shard of another shape");
        }
    }

    /** The shard of an item that shard 0 lacks; 0 when there is no other. */
    static int tail(long hash, int tailShards) {
        return tailShards == 0 ? 0 : (int) (1 + ItemHash.spread32(hash) % tailShards);
    }

    /** The codes, or null. */
    long[] find(long hash) {
        int from = 0;
        int to = count;
        while (from < to) {
            int middle = (from + to) >>> 1;
            if (Long.compareUnsigned(hashAt(middle), hash) < 0) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        return from < count && hashAt(from) == hash ? codes(from) : null;
    }

    private long hashAt(int index) {
        return bytes.getLong(HEADER_BYTES + 8 * index);
    }

    private long[] codes(int index) {
        int start = HEADER_BYTES + 8 * count + index * levels * codeBytes;
        long[] found = new long[levels];
        for (int level = 0; level < levels; level++) {
            int at = start + level * codeBytes;
            found[level] = codeBytes == 1 ? bytes.get(at) & 0xff : bytes.getShort(at) & 0xffff;
        }
        return found;
    }
}
