package beforehand.edge;

import java.util.Arrays;
import java.util.List;

/** The inputs of the prompt encoder for one device: {@code edge/features.py} in Java. Shapes: {@code schemas.graphs}. */
final class Features {
    private static final double DAY_MS = 86_400_000;
    private static final double HOUR_MS = 3_600_000;

    final long[] bucket;
    final float[] clock;
    final long[] codes;
    final long[] kind;
    final float[] age;

    /** @param events at most E, oldest first; padding is on the left */
    Features(List<KnownEvent> events, int localEvents, int levels, int bucket, long nowMs) {
        this.bucket = new long[] {bucket};
        clock = clock(nowMs);
        codes = new long[localEvents * levels];
        Arrays.fill(codes, -1);
        kind = new long[localEvents];
        age = new float[localEvents];
        int position = localEvents - events.size();
        for (KnownEvent known : events) {
            System.arraycopy(known.codes, 0, codes, position * levels, levels);
            kind[position] = known.event.kind.ordinal() + 1L;
            age[position] = (float) Math.log1p(Math.max(0, nowMs - known.event.atMs) / HOUR_MS);
            position++;
        }
    }

    private static float[] clock(long nowMs) {
        double day = nowMs / DAY_MS;
        double hour = 2 * Math.PI * (day % 1);
        double week = 2 * Math.PI * ((day + 3) % 7) / 7; // 1970-01-01 was a Thursday: 0 is Monday 00:00
        return new float[] {
            (float) Math.sin(hour), (float) Math.cos(hour), (float) Math.sin(week), (float) Math.cos(week)
        };
    }
}
