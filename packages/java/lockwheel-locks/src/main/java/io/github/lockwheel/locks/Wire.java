// A connection of a lock, whatever library has made it.

package io.github.lockwheel.locks;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The connection of one lock. The next command after it was closed opens it again. No command is
 * sent again unless a method says so: a {@code LOCK.ACQUIRE} would hold the lock twice.
 *
 * @param <C> the connection of the library
 */
abstract class Wire<C> {
    private CompletableFuture<C> connection;

    abstract CompletionStage<C> connect();

    /** Sends a command. A map in the reply is a list, and so is a single value. */
    abstract CompletionStage<List<Object>> send(C connection, List<String> words);

    abstract void disconnect(C connection);

    /** Whether the error is a reply of the server. */
    abstract boolean isReply(Throwable error);

    /** The reply to a command; waits for it. An interruption closes the connection. */
    final List<Object> callInterruptibly(long limitMs, List<String> words)
            throws InterruptedException {
        try {
            return reply(limitMs, words).get();
        } catch (InterruptedException error) {
            close();
            throw error;
        } catch (ExecutionException error) {
            throw failure(words, error.getCause());
        }
    }

    /** The reply to a command, which is sent again if the connection has ended. */
    final List<Object> callAgain(long limitMs, List<String> words) {
        try {
            return call(limitMs, words);
        } catch (RuntimeException error) {
            if (connection != null || error.getCause() instanceof TimeoutException) {
                throw error;
            }
            return call(limitMs, words);
        }
    }

    /** The reply to a command. */
    final List<Object> call(long limitMs, List<String> words) {
        try {
            return reply(limitMs, words).join();
        } catch (CompletionException error) {
            throw failure(words, error.getCause());
        }
    }

    private CompletableFuture<List<Object>> reply(long limitMs, List<String> words) {
        if (connection == null) {
            connection = connect().toCompletableFuture();
        }
        return connection.thenCompose(open -> send(open, words))
                .orTimeout(limitMs, TimeUnit.MILLISECONDS);
    }

    private RuntimeException failure(List<String> words, Throwable cause) {
        // The server may also refuse the connection.
        if (isReply(cause) && !connection.isCompletedExceptionally()) {
            return cause.getMessage().contains("unknown command")
                    ? new NoNativeLocksException(
                            "this server has no native locks: it must be Lockwheel 0.1 or later")
                    : (RuntimeException) cause;
        }
        close();
        if (cause instanceof TimeoutException) {
            return new LockException("no reply to " + words.get(0) + " in time", cause);
        }
        return cause instanceof RuntimeException
                ? (RuntimeException) cause : new LockException(words.get(0) + " failed", cause);
    }

    /** Closes the connection, or a connection that is not open yet when it is. */
    final void close() {
        if (connection != null) {
            connection.thenAccept(this::disconnect);
            connection = null;
        }
    }
}
