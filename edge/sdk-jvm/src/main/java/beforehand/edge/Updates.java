package beforehand.edge;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** Which bundle serves: the kept one at the start, then whatever is rolled out to this device. One thread at a time. */
final class Updates {
    private static final Set<BundleReason> PASSING =
            Set.of(BundleReason.UNREACHABLE, BundleReason.HTTP_ERROR, BundleReason.TIMED_OUT);
    private static final long MIN_REFRESH_MS = 60_000;
    private static final long RETRY_MS = 5_000;

    private final Source source;
    /** Told of the new bundle and the one before (or null). */
    private final BiConsumer<Bundle, Bundle> changed;

    private volatile Bundle bundle;
    private volatile BundleReason reason;
    private volatile long refreshMs = 3_600_000;
    private volatile int failures;
    private long seenMs;

    Updates(Source source, BiConsumer<Bundle, Bundle> changed) {
        this.source = source;
        this.changed = changed;
    }

    Bundle bundle() {
        return bundle;
    }

    /** What became of the last look; null before the first. */
    BundleReason reason() {
        return reason;
    }

    /** When to look again: as often as {@code current.json} says, sooner while the server can't be reached. */
    long nextMs() {
        return failures == 0 ? refreshMs : Math.min(refreshMs, RETRY_MS << Math.min(failures, 10));
    }

    /** Load what is kept; no network unless a kept file is damaged. */
    void restore() {
        byte[] current = source.cache.get(Cache.CURRENT);
        byte[] manifest = source.cache.get(Cache.MANIFEST);
        try {
            seenMs = current == null ? 0 : source.envelopes.open(current).getLong("made_at");
            if (manifest != null) {
                serve(new Bundle(source, new Content(source.envelopes.open(manifest))));
            }
        } catch (RefusedException e) {
            reason = e.reason;
        } catch (JSONException e) {
            reason = BundleReason.CORRUPT;
        }
    }

    /** Look for a bundle. */
    synchronized BundleReason look() {
        BundleReason said;
        try {
            said = once();
        } catch (RefusedException e) {
            said = e.reason;
        } catch (JSONException e) {
            said = BundleReason.CORRUPT;
        }
        failures = PASSING.contains(said) ? failures + 1 : 0;
        reason = said;
        return said;
    }

    private BundleReason once() throws RefusedException {
        byte[] raw = source.current();
        JSONObject current = source.envelopes.open(raw);
        if (current.getLong("made_at") < seenMs) {
            return BundleReason.NOT_NEWER;
        }
        refreshMs = Math.max(MIN_REFRESH_MS, (long) (current.getDouble("refresh_s") * 1000));
        Rollout.Offer offer =
                Rollout.choose(offers(current.getJSONArray("offers")), source.cache.seed(), source.options.appVersion);
        if (offer == null) {
            return BundleReason.NO_OFFER;
        }
        if (bundle == null || !offer.id.equals(bundle.content.id)) {
            take(offer.id);
        }
        seenMs = current.getLong("made_at");
        source.cache.put(Cache.CURRENT, raw);
        return BundleReason.OK;
    }

    private void take(String id) throws RefusedException {
        byte[] raw = source.manifest(id);
        Content content = new Content(source.envelopes.open(raw));
        if (!content.id.equals(id)) {
            throw RefusedException.corrupt("the manifest of another bundle");
        }
        if (content.tooOld(source.options.clock.getAsLong())) {
            throw new RefusedException(BundleReason.TOO_OLD, id);
        }
        serve(new Bundle(source, content));
        source.cache.put(Cache.MANIFEST, raw);
        Set<String> wanted = new HashSet<>();
        content.files.values().forEach(entry -> wanted.add(entry.sha256));
        source.cache.trim(wanted);
    }

    private void serve(Bundle next) {
        Bundle before = bundle;
        bundle = next;
        changed.accept(next, before);
    }

    static List<Rollout.Offer> offers(JSONArray given) {
        List<Rollout.Offer> offers = new ArrayList<>();
        for (int i = 0; i < given.length(); i++) {
            JSONObject offer = given.getJSONObject(i);
            offers.add(new Rollout.Offer(offer.getString("id"), offer.getDouble("share"), offer.getString("min_app")));
        }
        return offers;
    }
}
