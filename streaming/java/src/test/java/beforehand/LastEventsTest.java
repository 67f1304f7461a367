package beforehand;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.data.StringData;
import org.apache.flink.types.Row;
import org.junit.jupiter.api.Test;

class LastEventsTest {
  private final LastEvents function = new LastEvents();

  /** The rule in its plainest form: keep all, first arrival of an id wins, sort, cut. */
  private static List<Row> naive(List<Row> arrivals, int size) {
    Map<String, Row> distinct = new LinkedHashMap<>();
    arrivals.forEach(event -> distinct.putIfAbsent(event.getFieldAs(0), event));
    Comparator<Row> order = Comparator.<Row, Long>comparing(event -> event.getFieldAs(3));
    order = order.thenComparing(event -> event.<String>getFieldAs(0).codePoints().toArray(), Arrays::compare);
    return distinct.values().stream().sorted(order.reversed()).limit(size).collect(Collectors.toList());
  }

  private LastEvents.Buffer fold(LastEvents.Buffer buffer, List<Row> arrivals, int size) {
    for (Row event : arrivals) {
      function.accumulate(
          buffer, text(event, 0), text(event, 1), text(event, 2), event.getFieldAs(3), 7L, size);
    }
    return buffer;
  }

  private static StringData text(Row event, int place) {
    return StringData.fromString(event.getFieldAs(place));
  }

  private List<Row> window(List<Row> arrivals, int size) {
    return read(function.getValue(fold(function.createAccumulator(), arrivals, size)));
  }

  private static List<Row> read(byte[] window) {
    List<Row> rows = new ArrayList<>();
    if (window == null) {
      return rows;
    }
    try {
      JsonNode json = new ObjectMapper().readTree(window);
      assertEquals(7, json.get("arrived_at").asLong());
      for (JsonNode one : json.get("events")) {
        String kind = one.get("kind").asText();
        rows.add(Row.of(one.get("event_id").asText(), one.get("item_id").asText(), kind, one.get("at").asLong()));
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return rows;
  }

  private static Row forget(long at) {
    return Row.of(null, null, EventParser.FORGET, at);
  }

  private static Row event(String id, long at) {
    return Row.of(id, "item-" + id, "click", at);
  }

  @Test
  void agreesWithTheNaiveRule() {
    Random random = new Random(3);
    String[] alphabet = {"a", "b", "é", "中", "😀", "\uffee", "z"};
    for (int trial = 0; trial < 2_000; trial++) {
      int size = 1 + random.nextInt(8);
      List<Row> events = new ArrayList<>();
      for (int number = random.nextInt(40); number > 0; number--) {
        String id = alphabet[random.nextInt(alphabet.length)] + alphabet[random.nextInt(alphabet.length)];
        // An id always comes with the same time: what is delivered again is the same event.
        events.add(Row.of(id, "i" + random.nextInt(9), "cart", (long) Math.floorMod(id.hashCode(), 6)));
      }
      Map<String, Row> first = new LinkedHashMap<>();
      events.forEach(event -> first.putIfAbsent(event.getFieldAs(0), event));
      events.replaceAll(event -> first.get(event.<String>getFieldAs(0)));
      assertEquals(naive(events, size), window(events, size), () -> "size " + size + " of " + events);
    }
  }

  @Test
  void eventsThatWerePushedOutStayOutWhenDeliveredAgain() {
    Random random = new Random(5);
    for (int trial = 0; trial < 300; trial++) {
      List<Row> events = new ArrayList<>();
      for (int number = 0; number < 60; number++) {
        events.add(event("e" + number, random.nextInt(30)));
      }
      Collections.shuffle(events, random);
      List<Row> again = new ArrayList<>(events);
      Collections.shuffle(again, random);
      LastEvents.Buffer buffer = fold(function.createAccumulator(), events, 10);
      byte[] before = buffer.entries;
      fold(buffer, again, 10);
      assertTrue(Arrays.equals(before, buffer.entries), "a second delivery changed the window");
      assertEquals(naive(events, 10), read(function.getValue(buffer)));
    }
  }

  @Test
  void theFirstArrivalOfAnIdWins() {
    List<Row> arrivals = List.of(event("a", 5), Row.of("a", "other", "cart", 9L), event("b", 6));
    assertEquals(List.of(event("b", 6), event("a", 5)), window(arrivals, 3));
  }

  @Test
  void lengthsAbove255BytesAreKept() {
    String longId = "😀".repeat(256); // 1,024 bytes
    List<Row> arrivals = new ArrayList<>();
    for (int length : new int[] {1, 127, 128, 254, 255, 256}) {
      arrivals.add(Row.of("e".repeat(length), "i".repeat(length), "purchase", (long) length));
    }
    arrivals.add(Row.of(longId, longId, "click", 1_000L));
    assertEquals(naive(arrivals, 7), window(arrivals, 7));
    assertEquals(naive(arrivals, 4), window(arrivals, 4));
  }

  @Test
  void aSmallerSizeCutsAnOlderBufferAtTheNextEvent() {
    List<Row> arrivals = List.of(event("a", 1), event("b", 2), event("c", 3), event("d", 4));
    LastEvents.Buffer buffer = fold(function.createAccumulator(), arrivals, 4);
    fold(buffer, List.of(event("e", 5)), 2);
    assertEquals(List.of(event("e", 5), event("d", 4)), read(function.getValue(buffer)));
  }

  @Test
  void anEmptyBufferIsAnEmptyWindow() {
    assertEquals(List.of(), window(List.of(), 5));
  }

  @Test
  void whatWasForgottenStaysForgottenInEveryOrder() {
    Random random = new Random(7);
    for (int trial = 0; trial < 2_000; trial++) {
      List<Row> arrivals = new ArrayList<>();
      long newest = Long.MIN_VALUE;
      for (int number = random.nextInt(20); number > 0; number--) {
        arrivals.add(event("e" + number, random.nextInt(12)));
      }
      for (int number = random.nextInt(3); number > 0; number--) {
        arrivals.add(forget(random.nextInt(14) - 1));
        newest = Math.max(newest, arrivals.get(arrivals.size() - 1).<Long>getFieldAs(3));
      }
      Collections.shuffle(arrivals, random);
      long floor = newest;
      List<Row> kept = new ArrayList<>(arrivals);
      kept.removeIf(one -> one.getField(0) == null || one.<Long>getFieldAs(3) <= floor);
      assertEquals(naive(kept, 30), window(arrivals, 30), () -> "of " + arrivals);
    }
  }

  @Test
  void aForgottenUsersWindowIsATombstoneUntilTheNextEvent() {
    LastEvents.Buffer buffer = fold(function.createAccumulator(), List.of(event("a", 5), forget(5)), 3);
    assertNull(function.getValue(buffer));
    assertNull(function.getValue(fold(buffer, List.of(event("late", 4), event("a", 5)), 3)));
    assertEquals(List.of(event("b", 6)), read(function.getValue(fold(buffer, List.of(event("b", 6)), 3))));
  }

  @Test
  void idsAreEscapedAsJsonNeedsIt() {
    List<Row> arrivals = List.of(Row.of("\"\\{}\u2028\b", "中😀", "click", 1L));
    assertEquals(arrivals, window(arrivals, 3));
    List<Row> many = new ArrayList<>();
    for (char one = 1; one < 0x300; one++) {
      many.add(Row.of("e" + one, one + "i", "cart", 1_000L - one));
    }
    assertEquals(many, window(many, many.size()));
  }
}
