// Checks that a lock whose owner does not release it ends with its lease, and not before.

package lockwheel.clients;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Callable;
import java.util.function.LongSupplier;

public final class Lease {
    private Lease() {}

    /** The clock that decides the end of a lease, by which a test must measure it. */
    public enum Measured {
        /** The server counts from the request (PX, PEXPIRE): no nanosecond may be missing. */
        BY_SERVER(System::nanoTime),
        /**
         * The client sets a deadline in whole milliseconds of `System.currentTimeMillis()`, and the
         * next client compares it with the same clock, which truncates the start by up to 1 ms. So
         * the lease may be too short on a finer clock, but never on this one.
         */
        BY_CLIENT(() -> MILLISECONDS.toNanos(System.currentTimeMillis()));

        private final LongSupplier clockNanos;

        Measured(LongSupplier clockNanos) {
            this.clockNanos = clockNanos;
        }

        /** Begins to measure: before the lease begins. */
        public Since now() {
            return new Since(clockNanos, clockNanos.getAsLong());
        }
    }

    /** A moment, and the clock that showed it. */
    public record Since(LongSupplier clockNanos, long startNanos) {
        /** Whole milliseconds passed. */
        public long passedMs() {
            return NANOSECONDS.toMillis(clockNanos.getAsLong() - startNanos);
        }

        /** Fails if that long has not passed yet. */
        public void assertPassed(long leaseMs, String what) {
            var passed = passedMs();
            assertTrue(passed >= leaseMs, () -> what + " after " + passed + " ms of " + leaseMs);
        }
    }

    /**
     * Another's `attempt` is refused while the lease lasts, and its `wait` granted when it ended.
     * The lease begins after `take` is called, so nothing may be granted before its length from
     * there. On a machine so late that the attempt comes after the lease it is granted, and there
     * is nothing left to wait for.
     */
    public static void ends(
            Measured measured,
            long leaseMs,
            Actor.Task take,
            Callable<Boolean> attempt,
            Callable<Boolean> wait)
            throws Exception {
        var start = measured.now();
        take.run();
        assertTrue(attempt.call() || wait.call(), "refused after the lease");
        start.assertPassed(leaseMs, "granted");
    }
}
