package beforehand.edge;

/** An embedding, or why there is none. */
public final class Outcome {
    /** OK; NO_EVENTS with the default rows of the user's bucket; or why there are no rows. */
    public final EdgeReason reason;

    /** Of the release that made the rows; null without rows. */
    public final String release;

    public final int numRows;

    /** Time since the events were read. */
    public final long ageMs;

    private final float[] rows;

    private Outcome(EdgeReason reason, String release, float[] rows, int numRows, long ageMs) {
        this.reason = reason;
        this.release = release;
        this.rows = rows;
        this.numRows = numRows;
        this.ageMs = ageMs;
    }

    static Outcome none(EdgeReason reason) {
        return new Outcome(reason, null, null, 0, 0);
    }

    static Outcome made(EdgeReason reason, Content content, float[] rows) {
        return new Outcome(reason, content.release, rows, content.promptRows, 0);
    }

    Outcome aged(long ageMs) {
        return new Outcome(reason, release, rows, numRows, Math.max(0, ageMs));
    }

    /** Whether there are rows. */
    public boolean ok() {
        return rows != null;
    }

    /** The rows [P × d], flat; null when there are none. */
    public float[] rows() {
        return rows == null ? null : rows.clone();
    }
}
