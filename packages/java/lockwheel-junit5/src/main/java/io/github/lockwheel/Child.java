// Starts and ends the process of a server.

package io.github.lockwheel;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The process of a server. It ends when this JVM ends for any reason, because the pipe of its
 * standard input then closes.
 */
final class Child {
    /** A server starts within milliseconds, and within this limit even on a busy machine. */
    private static final int START_LIMIT_SECONDS = 30;
    /** A server stops within milliseconds. One that hangs is killed after this time. */
    private static final int STOP_LIMIT_SECONDS = 10;
    private static final int KEPT_LINES = 20;
    private static final Pattern READY =
            Pattern.compile("The server is now ready to accept connections on port (\\d+)");

    private final Process process;
    private final Deque<String> lastLines = new ArrayDeque<>();
    private final CompletableFuture<Integer> port = new CompletableFuture<>();

    Child(Path program, List<String> options) {
        var command = new ArrayList<>(List.of(
                program.toString(), "--port", "0", "--bind", LockwheelServer.HOST,
                "--enable-test-commands", "local", "--end-with-stdin", "yes"));
        command.addAll(options);
        var builder = new ProcessBuilder(command).redirectErrorStream(true);
        // Such variables set options of the server.
        builder.environment().keySet().removeIf(name -> name.startsWith("LOCKWHEEL_"));
        try {
            process = builder.start();
        } catch (IOException error) {
            throw new LockwheelException("the server cannot be started: " + error.getMessage(), error);
        }
        var reader = new Thread(this::read, "lockwheel-log");
        reader.setDaemon(true);
        reader.start();
    }

    /** Waits until the server accepts connections. Returns the port. */
    int port() {
        try {
            return port.get(START_LIMIT_SECONDS, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            throw new LockwheelException(error.getCause().getMessage(), error);
        } catch (TimeoutException error) {
            stop();
            throw new LockwheelException("the server did not report its port within "
                    + START_LIMIT_SECONDS + " s. Its output:\n" + output(), error);
        } catch (InterruptedException error) {
            stop();
            Thread.currentThread().interrupt();
            throw new LockwheelException("interrupted while the server started", error);
        }
    }

    long pid() {
        return process.pid();
    }

    /** Reads the output to its end, so that the pipe never fills. */
    private void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(
                process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                keep(line);
                Matcher ready = READY.matcher(line);
                if (ready.find()) {
                    port.complete(Integer.valueOf(ready.group(1)));
                }
            }
            port.completeExceptionally(new LockwheelException("the server ended with status "
                    + process.waitFor() + ":\n" + output()));
        } catch (IOException | InterruptedException error) {
            port.completeExceptionally(new LockwheelException("cannot read the output of the server", error));
        }
    }

    private synchronized void keep(String line) {
        lastLines.addLast(line);
        if (lastLines.size() > KEPT_LINES) {
            lastLines.removeFirst();
        }
    }

    private synchronized String output() {
        return String.join("\n", lastLines);
    }

    /** Stops the server and waits until it has ended. */
    void stop() {
        process.destroy();
        try {
            if (!process.waitFor(STOP_LIMIT_SECONDS, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
