// A call that runs in another thread.

package lockwheel.packages;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

final class Later<T> {
    /** The limit of every wait, much longer than any step takes on a busy machine. */
    static final int MAX_WAIT_SECONDS = 60;

    private final CompletableFuture<T> value = new CompletableFuture<>();

    private Later() {}

    /** Begins it in a thread of its own: locks of libraries belong to threads. */
    static <T> Later<T> run(Callable<T> task) {
        var later = new Later<T>();
        var thread = new Thread(() -> {
            try {
                later.value.complete(task.call());
            } catch (Throwable error) {
                later.value.completeExceptionally(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return later;
    }

    /** What came of it, or what it threw. */
    T get() throws Exception {
        try {
            return value.get(MAX_WAIT_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw (Error) error.getCause();
        }
    }

    boolean isDone() {
        return value.isDone();
    }

    /** Waits until a condition holds. */
    static void eventually(String what, BooleanSupplier condition) throws TimeoutException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(MAX_WAIT_SECONDS);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new TimeoutException(what);
            }
            Thread.onSpinWait();
        }
    }
}
