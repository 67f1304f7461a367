package beforehand.edge;

import java.util.Arrays;

/** How long the encoder usually takes on this device, and whether a limit is worth trying. */
final class Pace {
    private static final int KEPT = 5;
    private static final int RETRY_EVERY = 5;

    private final long[] recentNs = new long[KEPT];
    private int runs;
    private int skipped;

    /** The median of the last five runs; 0 before there are five: the first ones also warm the runtime. */
    synchronized long usualNs() {
        if (runs < KEPT) {
            return 0;
        }
        long[] sorted = recentNs.clone();
        Arrays.sort(sorted);
        return sorted[KEPT / 2];
    }

    synchronized void add(long tookNs) {
        recentNs[runs++ % KEPT] = tookNs;
    }

    /** False when the usual time is more than what is left; every fifth of those is tried all the same. */
    synchronized boolean allows(long leftNs) {
        if (usualNs() <= leftNs) {
            return true;
        }
        skipped = (skipped + 1) % RETRY_EVERY;
        return skipped == 0;
    }

    /** Another graph, another pace. */
    synchronized void forget() {
        runs = 0;
    }
}
