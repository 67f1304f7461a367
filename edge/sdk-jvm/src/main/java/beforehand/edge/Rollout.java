package beforehand.edge;

import java.util.ArrayList;
import java.util.List;

/** Who gets which bundle: {@code edge/rollout.py} in Java. */
final class Rollout {
    /** A bundle, and who gets it. */
    static final class Offer {
        final String id;
        final double share;
        final String minApp;

        Offer(String id, double share, String minApp) {
            this.id = id;
            this.share = share;
            this.minApp = minApp;
        }
    }

    private Rollout() {}

    /** Where a device stands in the roll-out of a bundle: 0 ≤ place < 1. */
    static double place(String seed, String bundle) {
        return ItemHash.spread32(ItemHash.of(seed + ":" + bundle)) / 4294967296.0;
    }

    /** The first offer that admits the device, or null. */
    static Offer choose(List<Offer> offers, String seed, String app) {
        for (Offer offer : offers) {
            if (atLeast(app, offer.minApp) && place(seed, offer.id) < offer.share) {
                return offer;
            }
        }
        return null;
    }

    static boolean atLeast(String given, String least) {
        List<Long> a = version(given);
        List<Long> b = version(least);
        for (int i = 0; i < Math.max(a.size(), b.size()); i++) {
            int order = Long.compare(i < a.size() ? a.get(i) : 0, i < b.size() ? b.get(i) : 0);
            if (order != 0) {
                return order > 0;
            }
        }
        return true;
    }

    /** {@code 2.10.1-beta} → 2, 10, 1: leading numbers up to the first part without one. */
    private static List<Long> version(String text) {
        List<Long> numbers = new ArrayList<>();
        for (String part : text.split("\\.", -1)) {
            int digits = 0;
            while (digits < part.length() && digits < 18 && part.charAt(digits) >= '0' && part.charAt(digits) <= '9') {
                digits++;
            }
            if (digits == 0) {
                break;
            }
            numbers.add(Long.parseLong(part.substring(0, digits)));
            if (digits < part.length()) {
                break;
            }
        }
        return numbers;
    }
}
