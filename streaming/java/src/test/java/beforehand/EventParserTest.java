package beforehand;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** The records that the contract's own decoder is tested with too: both must agree on each. */
class EventParserTest {
  static Stream<Arguments> records() throws IOException {
    List<Arguments> records = new ArrayList<>();
    try (InputStream list = EventParserTest.class.getResourceAsStream("/records.json")) {
      for (JsonNode record : new ObjectMapper().readTree(list)) {
        String reason = record.get("reason").isNull() ? null : record.get("reason").asText();
        records.add(Arguments.of(record.get("name").asText(), bytes(record), reason));
      }
    }
    return records.stream();
  }

  private static byte[] bytes(JsonNode record) {
    if (record.has("base64")) {
      return Base64.getDecoder().decode(record.get("base64").asText());
    }
    String text = record.get("text").asText();
    if (record.has("fill")) {
      text = text.replace("§", record.get("fill").asText().repeat(record.get("times").asInt()));
    }
    return text.getBytes(StandardCharsets.UTF_8);
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource("records")
  void namesTheReason(String name, byte[] record, String reason) {
    ParsedEvent event = EventParser.parse(record);
    assertEquals(reason, event.reason == null ? null : event.reason.label, name);
  }

  @Test
  void readsEveryField() {
    String record =
        "{\"at\":1500000000000,\"kind\":\"cart\",\"user_id\":\"ü\",\"x\":{\"at\":1},\"item_id\":\"\\u4e2d\","
            + "\"event_id\":\"first\",\"event_id\":\"e\"}";
    ParsedEvent event = EventParser.parse(record.getBytes(StandardCharsets.UTF_8));
    assertNull(event.reason);
    assertEquals(List.of("e", "ü", "中", "cart"), List.of(event.eventId, event.userId, event.itemId, event.kind));
    assertEquals(1_500_000_000_000L, event.at);
  }

  @Test
  void aTombstoneHasItsOwnReason() {
    assertEquals(Reason.NULL_VALUE, EventParser.parse(null).reason);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '`',
      value = {
        "{'user_id':'u','at':1500000000000} | ",
        "{'user_id':'u','at':1500000000000,'v':2,'kind':7,'event_id':null} | ",
        "{'at':1500000000000} | user_id",
        "{'user_id':'','at':1500000000000} | user_id",
        "{'user_id':'u'} | at",
        "{'user_id':'u','at':1500000000} | at_in_seconds",
        "[] | not_an_object",
      })
  void aRequestToForgetNeedsAUserAndATime(String record, String reason) {
    byte[] raw = record.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
    ParsedEvent event = EventParser.parse(raw, true);
    assertEquals(reason, event.reason == null ? null : event.reason.label);
    if (reason == null) {
      assertEquals(List.of("u", EventParser.FORGET), List.of(event.userId, event.kind));
      assertEquals(1_500_000_000_000L, event.at);
    }
  }

  @Test
  void noRecordMakesItThrow() {
    byte[] good =
        "{\"event_id\":\"e\",\"user_id\":\"u\",\"item_id\":\"i\",\"kind\":\"click\",\"at\":1500000000000}"
            .getBytes(StandardCharsets.UTF_8);
    Random random = new Random(1);
    int numBad = 0;
    for (int trial = 0; trial < 20_000; trial++) {
      byte[] record = good.clone();
      for (int change = random.nextInt(3); change >= 0; change--) {
        record[random.nextInt(record.length)] = (byte) random.nextInt(256);
      }
      numBad += EventParser.parse(record).reason == null ? 0 : 1;
    }
    assertTrue(numBad > 5_000, "the changes are too mild to test anything: " + numBad);
  }

  @Test
  void nestingToTheLimitOfARecordIsRefusedWithoutARecursion() {
    byte[] record = "[".repeat(EventParser.MAX_RECORD_BYTES).getBytes(StandardCharsets.UTF_8);
    assertEquals(Reason.NOT_JSON, EventParser.parse(record).reason);
  }
}
