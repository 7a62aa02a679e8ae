package io.github.lockwheel;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.Stream;

/**
 * A server for tests: a process of its own on a free port of this machine, which holds locks as
 * Redis does, and whose clock, faults and memory of what has happened belong to the test.
 *
 * <p>It ends when it is stopped, and with this JVM at the latest, even if that is killed. It may be
 * used by several threads at once.
 */
public final class LockwheelServer implements AutoCloseable {
    static final String HOST = "127.0.0.1";

    private final Child child;
    private final int port;
    private final boolean frozen;
    private final String password;
    private final Connection control;
    private final Connection calls;

    private LockwheelServer(Builder builder) {
        frozen = builder.frozen;
        child = new Child(Program.find(), builder.options);
        port = child.port();
        password = builder.password();
        control = new Connection(port, password);
        calls = new Connection(port, password);
        try {
            begin();
        } catch (LockwheelException error) {
            stop();
            throw error;
        }
    }

    /** Opens the control connection, too, which no fault closes. */
    private void begin() {
        if (frozen) {
            clock().freeze();
        } else {
            clock().run();
        }
    }

    /** How a server is to be. */
    public static final class Builder {
        private boolean frozen;
        private List<String> options = List.of();

        private Builder() {}

        /**
         * Whether its clock stands still from the beginning.
         *
         * @param frozen whether it does
         * @return this
         */
        public Builder frozen(boolean frozen) {
            this.frozen = frozen;
            return this;
        }

        /**
         * Options of redis-server, as on its command line.
         *
         * @param options such as {@code "--requirepass", "secret"}
         * @return this
         */
        public Builder options(String... options) {
            this.options = List.of(options);
            return this;
        }

        /**
         * Starts the server and waits until it listens.
         *
         * @return the server
         * @throws LockwheelException if there is no program to start, or it does not start
         */
        public LockwheelServer start() {
            return new LockwheelServer(this);
        }

        private String password() {
            int at = options.indexOf("--requirepass");
            return at < 0 ? null : options.get(at + 1);
        }
    }

    /**
     * Begins to say how a server is to be.
     *
     * @return the builder, whose server has a running clock and no options
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Starts a server whose clock runs.
     *
     * @return the server, which listens
     * @throws LockwheelException if there is no program to start, or it does not start
     */
    public static LockwheelServer start() {
        return builder().start();
    }

    /**
     * Where clients find it.
     *
     * @return such as {@code redis://127.0.0.1:40613}, with the password if there is one
     */
    public String url() {
        String user = password == null ? "" : ":"
                + URLEncoder.encode(password, StandardCharsets.UTF_8).replace("+", "%20") + "@";
        return "redis://" + user + HOST + ":" + port;
    }

    /**
     * The address it listens on.
     *
     * @return {@code 127.0.0.1}
     */
    public String host() {
        return HOST;
    }

    /**
     * The port it listens on.
     *
     * @return the port
     */
    public int port() {
        return port;
    }

    /**
     * Its process.
     *
     * @return the process id
     */
    public long pid() {
        return child.pid();
    }

    /**
     * Runs one command. All that are run so come over one connection, one after the other; faults
     * and gates are for it as for any other client's.
     *
     * @param command the command's name and its arguments
     * @return a string, a number (Long), nothing (null), or a list of these
     * @throws LockwheelException if the answer is an error, or there is none
     */
    public Object call(String... command) {
        return calls.call(command);
    }

    /**
     * Its clock: stops, moves, jumps.
     *
     * @return the clock
     */
    public Clock clock() {
        return new Clock(this);
    }

    /**
     * What goes wrong, and who is held.
     *
     * @return the faults
     */
    public Faults faults() {
        return new Faults(this);
    }

    /**
     * What has happened.
     *
     * @return the journal
     */
    public Journal journal() {
        return new Journal(this);
    }

    /**
     * Makes it as it was when it had started, for those who share one: no keys, no faults, no
     * gates, nothing in the journal, and a clock that stands or runs as it did. Connections stay,
     * and the clock's time.
     */
    public void reset() {
        faults().clear();
        faults().openGates();
        begin();
        call("FLUSHALL");
        call("SCRIPT", "FLUSH");
        journal().clear();
    }

    /** Ends it and waits until it has ended. It may be stopped already. */
    public void stop() {
        // Whoever waits for an answer, and so has a connection, hears of the end first.
        child.stop();
        control.close();
        calls.close();
    }

    /** As {@link #stop}. */
    @Override
    public void close() {
        stop();
    }

    /** One of the commands for tests, which no fault is for. */
    Object control(String... command) {
        return control.call(lockwheel(command));
    }

    /** As {@link #control}, for what waits: others need not wait for it. */
    Object await(String... command) {
        try (var connection = new Connection(port, password)) {
            return connection.call(lockwheel(command));
        }
    }

    /** The next {@link #call} connects anew. */
    void disconnectCalls() {
        calls.close();
    }

    private static String[] lockwheel(String... command) {
        return Stream.concat(Stream.of("LOCKWHEEL"), Stream.of(command)).toArray(String[]::new);
    }
}
