package beforehand;

/**
 * The share of bad records among those of the last minute.
 *
 * <p>Times are whole seconds of any clock that does not run backwards. Safe to read from the metrics' thread.
 */
final class BadShare {
  static final int WINDOW_S = 60;

  /** Fewer records than these are too few to judge: three bad ones at night must not stop a job. */
  static final long ENOUGH_RECORDS = 100;

  private final long[] records = new long[WINDOW_S];
  private final long[] badRecords = new long[WINDOW_S];
  private long numRecords;
  private long numBad;
  private long newestS = Long.MIN_VALUE;

  synchronized void add(boolean bad, long nowS) {
    forget(nowS);
    int slot = (int) Math.floorMod(nowS, (long) WINDOW_S);
    records[slot]++;
    numRecords++;
    if (bad) {
      badRecords[slot]++;
      numBad++;
    }
  }

  /** 0 … 1; 0 when nothing came within the minute. */
  synchronized double share(long nowS) {
    forget(nowS);
    return numRecords == 0 ? 0 : (double) numBad / numRecords;
  }

  /** Whether the share is above the limit, and of enough records. */
  synchronized boolean exceeds(double limit, long nowS) {
    return share(nowS) > limit && numRecords >= ENOUGH_RECORDS;
  }

  private void forget(long nowS) {
    long first = Math.max(newestS + 1, nowS - WINDOW_S + 1);
    for (long second = first; newestS != Long.MIN_VALUE && second <= nowS; second++) {
      int slot = (int) Math.floorMod(second, (long) WINDOW_S);
      numRecords -= records[slot];
      numBad -= badRecords[slot];
      records[slot] = 0;
      badRecords[slot] = 0;
    }
    newestS = Math.max(newestS, nowS);
  }
}
