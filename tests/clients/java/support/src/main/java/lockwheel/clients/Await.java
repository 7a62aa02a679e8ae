// Waits for a condition, with a limit that only an error reaches.

package lockwheel.clients;

import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;

public final class Await {
    private static final long MAX_WAIT_SECONDS = 20;

    private Await() {}

    /** Returns as soon as the condition holds; fails with `what` if it never does. */
    public static void until(String what, Callable<Boolean> condition) throws Exception {
        var end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MAX_WAIT_SECONDS);
        while (!condition.call()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("timed out: " + what);
            }
            Thread.sleep(10);
        }
    }
}
