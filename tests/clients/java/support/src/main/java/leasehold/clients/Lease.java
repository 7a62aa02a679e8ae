package leasehold.clients;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;

/** A lease that its owner never gives back: it lasts, and then it is over. */
public final class Lease {
    private Lease() {}

    /**
     * Another's `attempt` is refused while the lease lasts, and its `wait` granted when it ended.
     * The lease begins after `take` is called, so nothing may be granted before its length from
     * there; only a machine that is late for the attempt itself may see that granted.
     */
    public static void ends(
            long leaseMs, Actor.Task take, Callable<Boolean> attempt, Callable<Boolean> wait)
            throws Exception {
        var start = System.nanoTime();
        take.run();
        var granted = attempt.call();
        assertTrue(!granted || since(start) >= leaseMs, "granted while the lease lasted");
        assertTrue(wait.call(), "refused after the lease");
        var waited = since(start);
        assertTrue(waited >= leaseMs, () -> "granted after " + waited + " ms");
    }

    private static long since(long startNanos) {
        return NANOSECONDS.toMillis(System.nanoTime() - startNanos);
    }
}
