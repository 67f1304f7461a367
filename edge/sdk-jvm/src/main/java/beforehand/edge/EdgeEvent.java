package beforehand.edge;

/** One thing that the user did here. */
public final class EdgeEvent {
    private static final long MIN_AT_MS = 946_684_800_000L; // 2000-01-01: anything smaller is seconds, or a mistake
    private static final long MAX_AT_MS = 4_102_444_800_000L; // 2100-01-01: anything larger is microseconds
    private static final int MAX_ID_LENGTH = 256;

    final String eventId;
    final String userId;
    final String itemId;
    final Kind kind;
    final long atMs;

    /**
     * @param eventId unique per event: of one id the first that arrives counts
     * @param userId the user who is signed in, or null for that one; another's event is refused
     * @param itemId the shop's own id
     * @param kind what the user did
     * @param atMs milliseconds since 1970
     */
    public EdgeEvent(String eventId, String userId, String itemId, Kind kind, long atMs) {
        this.eventId = eventId;
        this.userId = userId;
        this.itemId = itemId;
        this.kind = kind;
        this.atMs = atMs;
    }

    boolean wellFormed() {
        return isId(eventId) && isId(itemId) && kind != null && atMs >= MIN_AT_MS && atMs <= MAX_AT_MS;
    }

    /** 1 to 256 characters, none of them a control character or half a surrogate pair. */
    static boolean isId(String id) {
        return id != null
                && !id.isEmpty()
                && id.codePointCount(0, id.length()) <= MAX_ID_LENGTH
                && id.codePoints().allMatch(c -> c >= 0x20 && c != 0x7f && !(c >= 0xd800 && c <= 0xdfff));
    }
}
