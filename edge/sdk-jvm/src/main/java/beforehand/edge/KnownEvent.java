package beforehand.edge;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** An event whose item's codes are known. */
final class KnownEvent {
    private static final Comparator<KnownEvent> BY_TIME =
            Comparator.<KnownEvent>comparingLong(known -> known.event.atMs)
                    .thenComparing(known -> known.event.eventId, KnownEvent::compareText);

    final EdgeEvent event;
    /** Place in the order of arrival. */
    final long order;

    final long[] codes;

    KnownEvent(EdgeEvent event, long order, long[] codes) {
        this.event = event;
        this.order = order;
        this.codes = codes;
    }

    /** The newest distinct events, newest last: of one id the first that arrived, ordered by (at, id). */
    static List<KnownEvent> newest(List<KnownEvent> events, int limit) {
        Map<String, KnownEvent> distinct = new HashMap<>();
        for (KnownEvent known : events) {
            distinct.merge(known.event.eventId, known, (a, b) -> a.order <= b.order ? a : b);
        }
        List<KnownEvent> ordered = new ArrayList<>(distinct.values());
        ordered.sort(BY_TIME);
        return new ArrayList<>(ordered.subList(Math.max(0, ordered.size() - limit), ordered.size()));
    }

    /** By code point: {@link String#compareTo} compares UTF-16 units, and puts U+FF5E after every emoji. */
    private static int compareText(String a, String b) {
        int[] x = a.codePoints().toArray();
        int[] y = b.codePoints().toArray();
        for (int i = 0; i < Math.min(x.length, y.length); i++) {
            if (x[i] != y[i]) {
                return Integer.compare(x[i], y[i]);
            }
        }
        return Integer.compare(x.length, y.length);
    }
}
