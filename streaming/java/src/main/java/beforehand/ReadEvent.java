package beforehand;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.execution.SuppressRestartsException;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * {@code READ_EVENT(value, arrived_at, forgetting, max_future_ms, max_bad_share)}: what became of one record.
 *
 * <p>With {@code forgetting} the record asks to forget a user: kind is {@code forget}, event_id and item_id are null.
 *
 * <p>{@code reason} is null for an event, and then {@code payload} is null too; otherwise the event's own columns
 * are null and {@code payload} holds the record, cut to 64 KB. {@code arrived_at} is the broker's time stamp in ms.
 *
 * <p>When more than {@code max_bad_share} of the records of the last minute that this subtask read were bad, the job
 * fails and does not restart: the producers are broken, and windows made of the rest would be half true. Its last
 * checkpoint stays.
 *
 * <p>Metrics of the operator: {@code bh_records}, {@code bh_bad_records}, {@code bh_bad_share}.
 */
@FunctionHint(
    output =
        @DataTypeHint(
            value =
                "ROW<event_id STRING, user_id STRING, item_id STRING, kind STRING, `at` BIGINT, arrived_at BIGINT, "
                    + "reason STRING, payload BYTES>",
            bridgedTo = RowData.class))
public class ReadEvent extends ScalarFunction {
  private transient BadShare badShare;
  private transient Counter records;
  private transient Counter badRecords;

  @Override
  public void open(FunctionContext context) {
    badShare = new BadShare();
    MetricGroup metrics = context.getMetricGroup();
    records = metrics.counter("bh_records");
    badRecords = metrics.counter("bh_bad_records");
    metrics.gauge("bh_bad_share", () -> badShare.share(nowS()));
  }

  /** Never null; see the class. Rows, texts and times are Flink's own, which cost no conversion. */
  public RowData eval(
      byte[] value,
      @DataTypeHint(value = "TIMESTAMP_LTZ(3)", bridgedTo = TimestampData.class) TimestampData arrivedAt,
      @DataTypeHint("BOOLEAN") Boolean forgetting,
      @DataTypeHint("BIGINT") Long maxFutureMs,
      @DataTypeHint("DOUBLE") Double maxBadShare) {
    ParsedEvent event = EventParser.parse(value, forgetting);
    long arrivedAtMs = arrivedAt.getMillisecond();
    if (event.reason == null && event.at > arrivedAtMs + maxFutureMs) {
      event.fault(Reason.FUTURE);
    }
    count(event.reason, maxBadShare);
    return event.reason == null ? good(event, arrivedAtMs) : bad(event.reason, value, arrivedAtMs);
  }

  private static RowData good(ParsedEvent event, long arrivedAtMs) {
    return GenericRowData.of(
        text(event.eventId), text(event.userId), text(event.itemId), text(event.kind), event.at, arrivedAtMs, null, null);
  }

  private static StringData text(String value) {
    return value == null ? null : StringData.fromBytes(value.getBytes(StandardCharsets.UTF_8));
  }

  private static RowData bad(Reason reason, byte[] value, long arrivedAtMs) {
    byte[] raw = value == null ? new byte[0] : value;
    byte[] payload = raw.length > EventParser.MAX_RECORD_BYTES ? Arrays.copyOf(raw, EventParser.MAX_RECORD_BYTES) : raw;
    return GenericRowData.of(null, null, null, null, null, arrivedAtMs, text(reason.label), payload);
  }

  private void count(Reason reason, double maxBadShare) {
    records.inc();
    long now = nowS();
    badShare.add(reason != null, now);
    if (reason == null) {
      return;
    }
    badRecords.inc();
    if (badShare.exceeds(maxBadShare, now)) {
      throw new SuppressRestartsException(new IllegalStateException(tooMany(reason, maxBadShare, now)));
    }
  }

  private String tooMany(Reason reason, double maxBadShare, long now) {
    return String.format(
        "%.0f %% of the last minute's records are dead letters (the newest: %s); nearline.max_bad_share is %.0f %%. "
            + "Mend the producers, or deploy with a larger nearline.max_bad_share.",
        badShare.share(now) * 100, reason.label, maxBadShare * 100);
  }

  private static long nowS() {
    return TimeUnit.NANOSECONDS.toSeconds(System.nanoTime());
  }
}
