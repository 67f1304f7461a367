package beforehand.edge;

/** Why there is no prompt embedding, or what became of an event. The words of {@code edge/names.py}. */
public enum EdgeReason {
    OK,
    NOT_LOADED,
    TOO_OLD,
    TOO_LATE,
    NO_CONSENT,
    NO_EVENTS,
    NOT_MADE,
    USER_CHANGED,
    NOT_FINITE,
    BAD_SHAPE,
    ENCODE_FAILED,
    NO_USER,
    OTHER_USER,
    UNKNOWN_ITEM,
    BAD_EVENT;

    /** The word that all SDKs share. */
    public String word() {
        return name().toLowerCase(java.util.Locale.ROOT);
    }
}
