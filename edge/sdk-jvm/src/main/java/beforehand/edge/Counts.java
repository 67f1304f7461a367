package beforehand.edge;

import java.util.EnumMap;
import java.util.Map;

/** How often each reason was given. */
final class Counts {
    private final EnumMap<EdgeReason, Long> counts = new EnumMap<>(EdgeReason.class);

    synchronized EdgeReason add(EdgeReason reason) {
        counts.merge(reason, 1L, Long::sum);
        return reason;
    }

    synchronized Counts with(EdgeReason reason, long more) {
        Counts copy = new Counts();
        copy.counts.putAll(counts);
        if (more > 0) {
            copy.counts.put(reason, more);
        }
        return copy;
    }

    synchronized Map<EdgeReason, Long> all() {
        return Map.copyOf(counts);
    }
}
