package beforehand;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class BadShareTest {
  @Test
  void nothingIsNoShare() {
    assertEquals(0, new BadShare().share(5));
  }

  @Test
  void aFewRecordsAreTooFewToJudge() {
    BadShare share = new BadShare();
    for (int record = 1; record < BadShare.ENOUGH_RECORDS; record++) {
      share.add(true, 10);
    }
    assertFalse(share.exceeds(0.2, 10));
    share.add(true, 10);
    assertTrue(share.exceeds(0.2, 10));
  }

  @Test
  void theLimitItselfIsAllowed() {
    BadShare share = new BadShare();
    for (int record = 0; record < 1000; record++) {
      share.add(record % 5 == 0, 10);
    }
    assertFalse(share.exceeds(0.2, 10));
    share.add(true, 10);
    assertTrue(share.exceeds(0.2, 10));
  }

  @Test
  void agreesWithCountingTheLastMinute() {
    Random random = new Random(7);
    BadShare share = new BadShare();
    List<long[]> seen = new ArrayList<>();
    long now = -130; // a clock may start below zero
    for (int record = 0; record < 5_000; record++) {
      now += random.nextInt(50) == 0 ? random.nextInt(90) : random.nextInt(2);
      boolean bad = random.nextInt(4) == 0;
      share.add(bad, now);
      seen.add(new long[] {now, bad ? 1 : 0});
      long then = now;
      long num = seen.stream().filter(one -> one[0] > then - BadShare.WINDOW_S).count();
      long numBad = seen.stream().filter(one -> one[0] > then - BadShare.WINDOW_S).mapToLong(one -> one[1]).sum();
      assertEquals((double) numBad / num, share.share(now), 1e-12);
    }
  }
}
