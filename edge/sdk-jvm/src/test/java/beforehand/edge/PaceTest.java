package beforehand.edge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class PaceTest {
    private static Pace paced(long... took) {
        Pace pace = new Pace();
        for (long ns : took) {
            pace.add(ns);
        }
        return pace;
    }

    @Test
    void beforeFiveRunsNothingIsKnownAndEveryLimitIsTried() {
        Pace pace = paced(500, 500, 500, 500);
        assertEquals(0, pace.usualNs());
        assertTrue(pace.allows(1));
    }

    @Test
    void theUsualTimeIsTheMedianOfTheLastFive() {
        assertEquals(3, paced(900, 3, 1, 2, 700).usualNs());
        assertEquals(3, paced(900, 900, 900, 5, 4, 3, 2, 1).usualNs());
    }

    @Test
    void tooLittleTimeIsTriedOnceInFiveSoThatAFasterDeviceIsNoticed() {
        Pace pace = paced(30, 30, 30, 30, 30);
        assertTrue(pace.allows(30));
        assertEquals(4, IntStream.range(0, 20).filter(turn -> pace.allows(20)).count());
        for (int run = 0; run < 3; run++) {
            pace.add(1);
        }
        assertTrue(pace.allows(20));
    }

    @Test
    void anotherGraphHasAPaceOfItsOwn() {
        Pace pace = paced(30, 30, 30, 30, 30);
        pace.forget();
        assertEquals(0, pace.usualNs());
        assertTrue(pace.allows(1));
    }
}
