package beforehand.edge;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

/** What the present user did here, as far as the encoder can use it. In memory only. Guarded by its own lock. */
final class Visit {
    private static final int MAX_WAITING = 64;

    private List<KnownEvent> known = new ArrayList<>();
    private List<KnownEvent> waiting = new ArrayList<>();
    private long arrived;
    private long unknown;
    private Bundle bundle;

    /** Events that were dropped because the bundle lacks their item. */
    synchronized long unknown() {
        return unknown;
    }

    /** Events whose codes are not here yet. */
    synchronized int pending() {
        return waiting.size();
    }

    synchronized List<KnownEvent> events() {
        return List.copyOf(known);
    }

    synchronized void clear() {
        known = new ArrayList<>();
        waiting = new ArrayList<>();
    }

    /** Keep an event; the shard that must be loaded for it, or 0. Without a bundle it waits for one. */
    synchronized int track(EdgeEvent event) {
        return sort(new KnownEvent(event, arrived++, null));
    }

    /** Another bundle: the codes of all events are looked up anew. The shards that must be loaded. */
    synchronized TreeSet<Integer> rebase(Bundle next) {
        bundle = next;
        List<KnownEvent> all = new ArrayList<>(known);
        all.addAll(waiting);
        clear();
        TreeSet<Integer> missing = new TreeSet<>();
        all.forEach(each -> missing.add(sort(each)));
        missing.remove(0);
        return missing;
    }

    /** A shard has come: the events that wait for it are waiting no more. */
    synchronized void arrived() {
        List<KnownEvent> before = waiting;
        waiting = new ArrayList<>();
        before.forEach(this::sort);
    }

    /** A shard did not come: the events that wait for it are left out. */
    synchronized void giveUp(int shard) {
        waiting.removeIf(each -> bundle.find(each.event.itemId).missingShard == shard);
    }

    private int sort(KnownEvent given) {
        Bundle.Found found = bundle == null ? null : bundle.find(given.event.itemId);
        if (found == null || found.missingShard != 0) {
            waiting.add(given);
            waiting = new ArrayList<>(waiting.subList(Math.max(0, waiting.size() - MAX_WAITING), waiting.size()));
            return found == null ? 0 : found.missingShard;
        }
        if (found.codes == null) {
            unknown++;
        } else {
            known.add(new KnownEvent(given.event, given.order, found.codes));
            known = KnownEvent.newest(known, bundle.content.localEvents);
        }
        return 0;
    }
}
