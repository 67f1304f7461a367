package beforehand;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.io.JsonStringEncoder;

/**
 * Writes one window as the contract {@code schemas.window.Window} says: events newest first, then arrived_at.
 *
 * <p>The texts are UTF-8 already, and few need an escape: they are copied, not decoded and encoded again.
 */
final class WindowJson {
  private static final byte[] BEGIN = ascii("{\"events\":[");
  private static final byte[] EVENT_ID = ascii("{\"event_id\":\"");
  private static final byte[] ITEM_ID = ascii("\",\"item_id\":\"");
  private static final byte[] KIND = ascii("\",\"kind\":\"");
  private static final byte[] AT = ascii("\",\"at\":");
  private static final byte[] ARRIVED_AT = ascii("],\"arrived_at\":");

  private byte[] out;
  private int length;
  private boolean first = true;

  /** {@code bytes} is about how long it will be. */
  WindowJson(int bytes) {
    out = new byte[bytes];
    put(BEGIN, 0, BEGIN.length);
  }

  /** Adds an event: event_id, item_id and kind lie in {@code entries} from {@code offset}, each after its uint16 length. */
  void add(byte[] entries, int offset, long at) {
    if (!first) {
      put((byte) ',');
    }
    first = false;
    int next = putText(EVENT_ID, entries, offset);
    next = putText(ITEM_ID, entries, next);
    putText(KIND, entries, next);
    putNumber(AT, at);
    put((byte) '}');
  }

  /** The bytes; nothing can be added any more. */
  byte[] finish(long arrivedAt) {
    putNumber(ARRIVED_AT, arrivedAt);
    put((byte) '}');
    return Arrays.copyOf(out, length);
  }

  private int putText(byte[] name, byte[] entries, int offset) {
    put(name, 0, name.length);
    int begin = offset + Short.BYTES;
    int end = begin + LastEvents.length(entries, offset);
    if (isPlain(entries, begin, end)) {
      put(entries, begin, end - begin);
    } else {
      String text = new String(entries, begin, end - begin, StandardCharsets.UTF_8);
      byte[] quoted = JsonStringEncoder.getInstance().quoteAsUTF8(text);
      put(quoted, 0, quoted.length);
    }
    return end;
  }

  private static boolean isPlain(byte[] text, int begin, int end) {
    for (int place = begin; place < end; place++) {
      byte one = text[place];
      if (one == '"' || one == '\\' || (one >= 0 && one < 0x20)) {
        return false;
      }
    }
    return true;
  }

  private void putNumber(byte[] name, long value) {
    put(name, 0, name.length);
    byte[] digits = ascii(Long.toString(value));
    put(digits, 0, digits.length);
  }

  private void put(byte one) {
    makeRoom(1);
    out[length++] = one;
  }

  private void put(byte[] bytes, int begin, int count) {
    makeRoom(count);
    System.arraycopy(bytes, begin, out, length, count);
    length += count;
  }

  private void makeRoom(int count) {
    if (length + count > out.length) {
      out = Arrays.copyOf(out, Math.max(2 * out.length, length + count));
    }
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }
}
