// A connection of the tests, to read the state of a server or shut it down.

package lockwheel.clients;

import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

public final class Redis implements AutoCloseable {
    private static final int ANSWER_TIMEOUT_MS = 20_000;

    private final Socket socket;
    private final InputStream input;

    public Redis(URI server) {
        try {
            socket = new Socket(server.getHost(), server.getPort());
            socket.setSoTimeout(ANSWER_TIMEOUT_MS);
            input = new BufferedInputStream(socket.getInputStream());
        } catch (IOException error) {
            throw new UncheckedIOException("cannot reach " + server, error);
        }
    }

    /** Shuts a server down without saving, and returns once it is gone. */
    public static void kill(URI server) {
        try (var redis = new Redis(server)) {
            redis.send("SHUTDOWN", "NOSAVE");
            redis.input.readAllBytes();
        } catch (IOException error) {
            // Reset instead of closed: gone as well.
        }
    }

    /** Sends a command; the answer is a String, Long, List or null, and an error is thrown. */
    public synchronized Object call(String... words) {
        try {
            send(words);
            return reply();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** The answer to a command that answers with a list of strings. */
    public List<String> list(String... words) {
        return ((List<?>) call(words)).stream().map(String::valueOf).toList();
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void send(String... words) throws IOException {
        var request = new StringBuilder("*" + words.length + "\r\n");
        for (var word : words) {
            request.append('$').append(word.getBytes(StandardCharsets.UTF_8).length).append("\r\n");
            request.append(word).append("\r\n");
        }
        socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.UTF_8));
    }

    private Object reply() throws IOException {
        var line = line();
        var rest = line.substring(1);
        switch (line.charAt(0)) {
            case '+':
                return rest;
            case ':':
                return Long.valueOf(rest);
            case '-':
                throw new IllegalStateException(rest);
            case '$':
                return rest.equals("-1") ? null : bulk(Integer.parseInt(rest));
            case '*':
                var items = new ArrayList<>();
                for (var count = Integer.parseInt(rest); count > 0; count--) {
                    items.add(reply());
                }
                return items;
            default:
                throw new IOException("not RESP2: " + line);
        }
    }

    private String bulk(int length) throws IOException {
        var bytes = input.readNBytes(length + 2);
        return new String(bytes, 0, length, StandardCharsets.UTF_8);
    }

    private String line() throws IOException {
        var line = new StringBuilder();
        for (var next = input.read(); next != '\n'; next = input.read()) {
            if (next < 0) {
                throw new EOFException("the server closed the connection");
            }
            line.append((char) next);
        }
        return line.substring(0, line.length() - 1);
    }
}
