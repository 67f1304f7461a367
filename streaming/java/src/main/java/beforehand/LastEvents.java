package beforehand;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.functions.AggregateFunction;

/**
 * {@code LAST_EVENTS(event_id, item_id, kind, at, arrived_at, size)}: a user's window as JSON ({@code schemas.window}),
 * the newest {@code size} distinct events, newest first; null when there is none.
 *
 * <p>Order is (at, event_id), ids as UTF-8 bytes, which is the order of their code points. An id that the buffer
 * holds is not taken again: the first arrival wins. An event that was pushed out is older than all the buffer holds,
 * and the buffer's oldest only ever gets newer, so the same event delivered again stays out. A sender that gives one
 * id to different events is noticed only while the first is in the buffer.
 *
 * <p>Kind {@code forget} drops what happened up to its {@code at}, now and whenever it arrives: so it does not matter
 * in which order events and forgetting come. A window without events is null, which the sink writes as a tombstone.
 *
 * <p>There is no {@code merge} on purpose: a local pre-aggregation would forget which of two arrivals came first.
 */
@FunctionHint(output = @DataTypeHint("BYTES"))
public class LastEvents extends AggregateFunction<byte[], LastEvents.Buffer> {
  private static final int ID_OFFSET = Long.BYTES;
  private static final int NUM_TEXTS = 3;
  /** About what the names and the numbers of a record add to its entries. */
  private static final int WINDOW_BYTES = 64;

  private static final int JSON_PER_BYTE = 2;
  private static final StringData FORGET = StringData.fromString(EventParser.FORGET);

  /** Entries, newest first: at as int64, then event_id, item_id and kind, each after its length as uint16. */
  public static class Buffer {
    public byte[] entries = new byte[0];
    public long arrivedAt = 0; // of the newest arrival, ms
    public long forgottenAt = Long.MIN_VALUE; // events up to this time are not taken
  }

  @Override
  public Buffer createAccumulator() {
    return new Buffer();
  }

  /** Texts are Flink's own, whose bytes are there already. */
  public void accumulate(
      Buffer buffer,
      @DataTypeHint(value = "STRING", bridgedTo = StringData.class) StringData eventId,
      @DataTypeHint(value = "STRING", bridgedTo = StringData.class) StringData itemId,
      @DataTypeHint(value = "STRING", bridgedTo = StringData.class) StringData kind,
      Long at,
      Long arrivedAt,
      Integer size) {
    buffer.arrivedAt = Math.max(buffer.arrivedAt, arrivedAt);
    if (FORGET.equals(kind)) {
      buffer.forgottenAt = Math.max(buffer.forgottenAt, at);
      buffer.entries = newerThan(buffer.entries, buffer.forgottenAt);
    } else if (at > buffer.forgottenAt) {
      buffer.entries = insert(buffer.entries, encode(eventId, itemId, kind, at), size);
    }
  }

  @Override
  public byte[] getValue(Buffer buffer) {
    if (buffer.entries.length == 0) {
      return null;
    }
    WindowJson json = new WindowJson(WINDOW_BYTES + JSON_PER_BYTE * buffer.entries.length);
    for (int offset = 0; offset < buffer.entries.length; offset = end(buffer.entries, offset)) {
      json.add(buffer.entries, offset + ID_OFFSET, at(buffer.entries, offset));
    }
    return json.finish(buffer.arrivedAt);
  }

  private static byte[] newerThan(byte[] entries, long at) {
    int offset = 0;
    while (offset < entries.length && at(entries, offset) > at) {
      offset = end(entries, offset);
    }
    return Arrays.copyOf(entries, offset);
  }

  /** {@code old} with {@code entry} in its place, cut to {@code size} entries; {@code old} itself when it stays out. */
  private static byte[] insert(byte[] old, byte[] entry, int size) {
    int position = -1; // where the entry goes
    int room = old.length; // bytes of the newest size - 1 entries: what stays beside the new one
    int count = 0;
    for (int offset = 0; offset < old.length; offset = end(old, offset), count++) {
      int order = compareIds(old, offset, entry);
      if (order == 0) {
        return old;
      }
      long difference = at(old, offset) - at(entry, 0);
      if (position < 0 && (difference < 0 || (difference == 0 && order < 0))) {
        position = offset;
      }
      if (count == size - 1) {
        room = offset;
      }
    }
    if (position < 0) {
      position = old.length;
    }
    boolean outside = count >= size && position > room;
    return outside ? old : splice(old, entry, position, room);
  }

  private static byte[] splice(byte[] old, byte[] entry, int position, int room) {
    byte[] made = new byte[room + entry.length];
    System.arraycopy(old, 0, made, 0, position);
    System.arraycopy(entry, 0, made, position, entry.length);
    System.arraycopy(old, position, made, position + entry.length, room - position);
    return made;
  }

  private static byte[] encode(StringData eventId, StringData itemId, StringData kind, long at) {
    byte[] id = eventId.toBytes();
    byte[] item = itemId.toBytes();
    byte[] action = kind.toBytes();
    int length = Long.BYTES + NUM_TEXTS * Short.BYTES + id.length + item.length + action.length;
    ByteBuffer entry = ByteBuffer.allocate(length).putLong(at);
    for (byte[] text : new byte[][] {id, item, action}) {
      entry.putShort((short) text.length).put(text);
    }
    return entry.array();
  }

  private static int compareIds(byte[] old, int offset, byte[] entry) {
    int oldId = offset + ID_OFFSET + Short.BYTES;
    int newId = ID_OFFSET + Short.BYTES;
    int oldEnd = oldId + length(old, offset + ID_OFFSET);
    return Arrays.compareUnsigned(old, oldId, oldEnd, entry, newId, newId + length(entry, ID_OFFSET));
  }

  private static long at(byte[] entries, int offset) {
    return ByteBuffer.wrap(entries).getLong(offset);
  }

  /** Of the text at {@code offset}. */
  static int length(byte[] entries, int offset) {
    return Byte.toUnsignedInt(entries[offset]) << Byte.SIZE | Byte.toUnsignedInt(entries[offset + 1]);
  }

  private static int end(byte[] entries, int offset) {
    int position = offset + ID_OFFSET;
    for (int text = 0; text < NUM_TEXTS; text++) {
      position += Short.BYTES + length(entries, position);
    }
    return position;
  }
}
