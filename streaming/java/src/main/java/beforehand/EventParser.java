package beforehand;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.StreamReadConstraints;

/**
 * Reads one record as {@code schemas.event} does: what that contract refuses is refused here, with the same limits.
 *
 * <p>One place is stricter: a record must be UTF-8 throughout, in fields that nobody reads as well. Both sides are
 * held together by one list of records, {@code src/test/resources/records.json}, which the tests of both read.
 *
 * <p>A record of the topic of forgotten users needs {@code user_id} and {@code at} only; its kind is {@link #FORGET}.
 */
final class EventParser {
  static final int MAX_RECORD_BYTES = 64 * 1024;
  static final int MAX_ID_CHARACTERS = 256;
  static final long MIN_AT_MS = 946_684_800_000L;
  static final long MAX_AT_MS = 4_102_444_800_000L;
  /** No kind of event: in {@code LAST_EVENTS} it drops what the user did up to {@code at}. */
  static final String FORGET = "forget";

  static final Set<String> KINDS = Set.of("impression", "click", "cart", "purchase");

  private static final JsonFactory JSON =
      JsonFactory.builder()
          // Names and numbers may be as long as the record; field names are the senders', so they are not interned.
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNestingDepth(1000)
                  .maxNameLength(MAX_RECORD_BYTES)
                  .maxNumberLength(MAX_RECORD_BYTES)
                  .build())
          .configure(JsonFactory.Feature.INTERN_FIELD_NAMES, false)
          .configure(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES, false)
          .build();

  private final JsonParser json;
  private final boolean escaped;
  private final boolean forgetting;
  private final ParsedEvent event = new ParsedEvent();

  private EventParser(JsonParser json, boolean escaped, boolean forgetting) {
    this.json = json;
    this.escaped = escaped;
    this.forgetting = forgetting;
  }

  /** The event in {@code raw}, or the reason why there is none. Never throws. */
  static ParsedEvent parse(byte[] raw) {
    return parse(raw, false);
  }

  /** The same, or with {@code forgetting} the request to forget a user. Never throws. */
  static ParsedEvent parse(byte[] raw, boolean forgetting) {
    if (raw == null) {
      return ParsedEvent.bad(Reason.NULL_VALUE);
    }
    if (raw.length > MAX_RECORD_BYTES) {
      return ParsedEvent.bad(Reason.TOO_LARGE);
    }
    String text;
    try {
      text = text(raw);
    } catch (CharacterCodingException error) {
      return ParsedEvent.bad(Reason.NOT_UTF8);
    }
    try (JsonParser json = JSON.createParser(text)) {
      return new EventParser(json, text.contains("\\u"), forgetting).read();
    } catch (IOException error) {
      return ParsedEvent.bad(Reason.NOT_JSON);
    }
  }

  private static String text(byte[] raw) throws CharacterCodingException {
    for (byte one : raw) {
      if (one < 0) {
        return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(raw)).toString();
      }
    }
    return new String(raw, StandardCharsets.ISO_8859_1); // ASCII, as most records are: nothing to decode
  }

  private ParsedEvent read() throws IOException {
    JsonToken first = next();
    if (first == JsonToken.START_OBJECT) {
      while (next() == JsonToken.FIELD_NAME) {
        readField(json.currentName(), next());
        skipRest();
      }
      if (forgetting) {
        event.completeForget();
      } else {
        event.complete();
      }
    } else if (first == null) {
      event.fault(Reason.NOT_JSON);
    } else {
      event.fault(Reason.NOT_AN_OBJECT);
      skipRest();
    }
    return next() == null ? event : ParsedEvent.bad(Reason.NOT_JSON);
  }

  private void readField(String name, JsonToken value) throws IOException {
    switch (name) {
      case "user_id":
        event.userId = id(value, Reason.USER_ID);
        break;
      case "at":
        event.at = at(value);
        break;
      case "v":
        check(value == JsonToken.VALUE_NUMBER_INT, Reason.V);
        break;
      default:
        if (!forgetting) {
          readEventField(name, value);
        }
    }
  }

  private void readEventField(String name, JsonToken value) throws IOException {
    switch (name) {
      case "event_id":
        event.eventId = id(value, Reason.EVENT_ID);
        break;
      case "item_id":
        event.itemId = id(value, Reason.ITEM_ID);
        break;
      case "kind":
        event.kind = kind(value);
        break;
      case "context":
        checkContext(value);
        break;
      default:
    }
  }

  private String id(JsonToken value, Reason reason) throws IOException {
    String id = value == JsonToken.VALUE_STRING ? json.getText() : "";
    boolean fits = id.length() <= MAX_ID_CHARACTERS || id.codePointCount(0, id.length()) <= MAX_ID_CHARACTERS;
    check(!id.isEmpty() && fits && isPrintable(id), reason);
    return id;
  }

  private static boolean isPrintable(String id) {
    for (int place = 0; place < id.length(); place++) {
      char character = id.charAt(place);
      if (character <= 0x1f || character == 0x7f) {
        return false;
      }
    }
    return true;
  }

  private String kind(JsonToken value) throws IOException {
    String kind = value == JsonToken.VALUE_STRING ? json.getText() : "";
    check(KINDS.contains(kind), Reason.KIND);
    return kind;
  }

  private Long at(JsonToken value) throws IOException {
    boolean whole = value == JsonToken.VALUE_NUMBER_INT && json.getNumberType() != JsonParser.NumberType.BIG_INTEGER;
    long at = whole ? json.getLongValue() : 0;
    if (!isTime(at)) {
      boolean seconds = at < MIN_AT_MS && isTime(at * 1000);
      boolean microseconds = isTime(at / 1000);
      event.fault(seconds ? Reason.AT_IN_SECONDS : microseconds ? Reason.AT_IN_MICROSECONDS : Reason.AT);
    }
    return at;
  }

  private static boolean isTime(long at) {
    return at >= MIN_AT_MS && at <= MAX_AT_MS;
  }

  private void checkContext(JsonToken value) throws IOException {
    if (value != JsonToken.START_OBJECT) {
      event.fault(Reason.CONTEXT);
      return;
    }
    while (next() == JsonToken.FIELD_NAME) {
      check(next() == JsonToken.VALUE_STRING, Reason.CONTEXT);
      skipRest();
    }
  }

  private void check(boolean holds, Reason reason) {
    if (!holds) {
      event.fault(reason);
    }
  }

  /** Moves to the end of the array or object that the current token opens, if it opens one. */
  private void skipRest() throws IOException {
    int depth = json.currentToken().isStructStart() ? 1 : 0;
    while (depth > 0) {
      JsonToken token = next();
      depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
    }
  }

  /** The next token; half of a surrogate pair, which only an escape can smuggle in, is not text. */
  private JsonToken next() throws IOException {
    JsonToken token = json.nextToken();
    boolean text = token == JsonToken.VALUE_STRING || token == JsonToken.FIELD_NAME;
    if (escaped && text && !StandardCharsets.UTF_8.newEncoder().canEncode(json.getText())) {
      throw new IOException("half of a surrogate pair");
    }
    return token;
  }
}
