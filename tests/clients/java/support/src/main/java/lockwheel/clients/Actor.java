// A thread that runs tasks in order, since lock libraries identify owners by thread.

package lockwheel.clients;

import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

public final class Actor implements AutoCloseable {
    private static final long MAX_WAIT_SECONDS = 120;

    private final ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
        var thread = new Thread(task, "actor");
        thread.setDaemon(true);
        return thread;
    });

    /** The result of a task, and the time of its end. */
    public static final class Result<T> {
        private final CompletableFuture<T> value = new CompletableFuture<>();
        private volatile long doneNanos;

        /** The value, or what was thrown. */
        public T get() throws Exception {
            try {
                return value.get(MAX_WAIT_SECONDS, TimeUnit.SECONDS);
            } catch (ExecutionException error) {
                if (error.getCause() instanceof Exception cause) {
                    throw cause;
                }
                throw (Error) error.getCause();
            } catch (TimeoutException error) {
                throw new AssertionError("not done within " + MAX_WAIT_SECONDS + " s", error);
            }
        }

        public boolean isDone() {
            return value.isDone();
        }

        /** `System.nanoTime()` when it was done, as its own thread saw it. */
        public long doneNanos() {
            return doneNanos;
        }
    }

    /** Begins a task and returns at once. */
    public <T> Result<T> begin(Callable<T> task) {
        var result = new Result<T>();
        thread.execute(() -> {
            try {
                var value = task.call();
                result.doneNanos = System.nanoTime();
                result.value.complete(value);
            } catch (Throwable error) {
                result.doneNanos = System.nanoTime();
                result.value.completeExceptionally(error);
            }
        });
        return result;
    }

    /** Does a task and returns its value. */
    public <T> T call(Callable<T> task) throws Exception {
        return begin(task).get();
    }

    /** Does a task. */
    public void run(Task task) throws Exception {
        begin(() -> {
            task.run();
            return null;
        }).get();
    }

    /** A task without a value. */
    public interface Task {
        void run() throws Exception;
    }

    @Override
    public void close() {
        thread.shutdownNow();
    }
}
