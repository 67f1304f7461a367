package beforehand.edge;

import java.nio.charset.StandardCharsets;

/** 64-bit FNV-1a and its spread: {@code edge/code_table.py} in Java. */
final class ItemHash {
    private static final long OFFSET = 0xcbf29ce484222325L;
    private static final long PRIME = 0x100000001b3L;

    private ItemHash() {}

    /** Of the id's UTF-8. */
    static long of(String id) {
        long value = OFFSET;
        for (byte each : id.getBytes(StandardCharsets.UTF_8)) {
            value = (value ^ (each & 0xff)) * PRIME;
        }
        return value;
    }

    /** 32 evenly spread bits, unsigned (murmur's finaliser). */
    static long spread32(long hash) {
        int mixed = (int) (hash ^ (hash >>> 32));
        mixed = (mixed ^ (mixed >>> 16)) * 0x85ebca6b;
        mixed = (mixed ^ (mixed >>> 13)) * 0xc2b2ae35;
        return (mixed ^ (mixed >>> 16)) & 0xffffffffL;
    }
}
