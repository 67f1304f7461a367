package beforehand;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonEncoding;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonGenerator;

/** Writes one window as the contract {@code schemas.window.Window} says: events newest first, then arrived_at. */
final class WindowJson {
  private static final JsonFactory JSON = new JsonFactory();
  private static final int USUAL_BYTES = 4096;

  private final ByteArrayOutputStream out = new ByteArrayOutputStream(USUAL_BYTES);
  private final JsonGenerator json;

  WindowJson() {
    try {
      json = JSON.createGenerator(out, JsonEncoding.UTF8);
      json.writeStartObject();
      json.writeArrayFieldStart("events");
    } catch (IOException error) {
      throw new UncheckedIOException(error); // nothing is written but memory
    }
  }

  void add(String eventId, String itemId, String kind, long at) {
    try {
      json.writeStartObject();
      json.writeStringField("event_id", eventId);
      json.writeStringField("item_id", itemId);
      json.writeStringField("kind", kind);
      json.writeNumberField("at", at);
      json.writeEndObject();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** The bytes; nothing can be added any more. */
  byte[] finish(long arrivedAt) {
    try {
      json.writeEndArray();
      json.writeNumberField("arrived_at", arrivedAt);
      json.writeEndObject();
      json.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return out.toByteArray();
  }
}
