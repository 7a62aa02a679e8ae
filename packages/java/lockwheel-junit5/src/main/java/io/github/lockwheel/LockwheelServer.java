// Public API: starts, stops and controls a server.

package io.github.lockwheel;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/**
 * A server for tests: a child process on a free port of 127.0.0.1, with methods that control its
 * clock and faults and read its journal.
 *
 * <p>It ends with {@link #stop}, or when this JVM ends for any reason. Several threads may use it at
 * once.
 */
public final class LockwheelServer implements AutoCloseable {
    static final String HOST = "127.0.0.1";

    private final List<String> options;
    private final int port;
    private final String password;
    private final Connection control;
    private final Connection calls;
    private volatile Child child;

    private LockwheelServer(Builder builder) {
        options = builder.allOptions();
        child = new Child(Program.find(), options);
        port = child.port();
        password = builder.password();
        control = new Connection(port, password);
        calls = new Connection(port, password);
        begin();
    }

    /** Opens the control connection, which fault rules do not affect. */
    private void begin() {
        try {
            clock().rate();
        } catch (LockwheelException error) {
            stop();
            throw error;
        }
    }

    /** The settings of a server. */
    public static final class Builder {
        private boolean frozen;
        private Instant clockStart;
        private List<String> lockKeys = List.of();
        private List<String> ignoredLockKeys = List.of();
        private List<String> options = List.of();

        private Builder() {}

        /**
         * Whether the server starts with a stopped clock.
         *
         * @param frozen whether it is stopped
         * @return this
         */
        public Builder frozen(boolean frozen) {
            this.frozen = frozen;
            return this;
        }

        /**
         * The time of the clock at the start, instead of the current time.
         *
         * @param clockStart the moment, to the millisecond
         * @return this
         */
        public Builder clockStart(Instant clockStart) {
            this.clockStart = clockStart;
            return this;
        }

        /**
         * Declares that keys that match one of the patterns are locks, however they are made.
         *
         * @param patterns the patterns, such as {@code "job:*"}
         * @return this
         */
        public Builder lockKeys(String... patterns) {
            lockKeys = List.of(patterns);
            return this;
        }

        /**
         * Declares that keys that match one of the patterns are no locks.
         *
         * @param patterns the patterns, such as {@code "idem:*"}
         * @return this
         */
        public Builder ignoredLockKeys(String... patterns) {
            ignoredLockKeys = List.of(patterns);
            return this;
        }

        /**
         * Options of redis-server, as on its command line.
         *
         * @param options the options, such as {@code "--requirepass", "secret"}
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

        private List<String> allOptions() {
            var all = new ArrayList<String>();
            if (frozen) {
                all.addAll(List.of("--clock-frozen", "yes"));
            }
            if (clockStart != null) {
                all.addAll(List.of("--clock-start", Long.toString(clockStart.toEpochMilli())));
            }
            if (!lockKeys.isEmpty()) {
                all.addAll(List.of("--lock-keys", String.join(" ", lockKeys)));
            }
            if (!ignoredLockKeys.isEmpty()) {
                all.addAll(List.of("--ignored-lock-keys", String.join(" ", ignoredLockKeys)));
            }
            all.addAll(options);
            return all;
        }

        private String password() {
            int at = options.indexOf("--requirepass");
            return at < 0 ? null : options.get(at + 1);
        }
    }

    /**
     * Makes a builder.
     *
     * @return the builder of a server with a running clock and no options
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Starts a server with a running clock.
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
     * The address that the server listens on.
     *
     * @return {@code 127.0.0.1}
     */
    public String host() {
        return HOST;
    }

    /**
     * The port that the server listens on.
     *
     * @return the port
     */
    public int port() {
        return port;
    }

    /**
     * The process of the server.
     *
     * @return the process id
     */
    public long pid() {
        return child.pid();
    }

    /**
     * Runs one command. All calls share one connection and run one at a time. Fault rules and gates
     * apply to it.
     *
     * @param command the command's name and its arguments
     * @return a String, a Long, null, or a list of these
     * @throws LockwheelException if the reply is an error, or there is none
     */
    public Object call(String... command) {
        return calls.call(command);
    }

    /**
     * The clock of the server.
     *
     * @return the clock
     */
    public Clock clock() {
        return new Clock(this);
    }

    /**
     * The fault rules and gates of the server.
     *
     * @return the faults
     */
    public Faults faults() {
        return new Faults(this);
    }

    /**
     * The journal of the server.
     *
     * @return the journal
     */
    public Journal journal() {
        return new Journal(this);
    }

    /**
     * Restores the state after the start, for a server shared by several tests: no keys, scripts,
     * functions, fault rules, gates or names of clients, an empty journal, the settings of the
     * start, and a clock that runs or is stopped as at the start. The connections of clients and the
     * time of the clock stay.
     */
    public void reset() {
        control("RESET");
        disconnectCalls();
    }

    /**
     * Stops the server, if it runs, and starts it again on the same port, as at the first start: all
     * connections end, and all keys are lost unless the options {@code "--appendonly", "yes"} keep
     * them.
     *
     * @throws LockwheelException if it does not start
     */
    public void restart() {
        stop();
        var again = new ArrayList<>(options);
        again.addAll(List.of("--port", Integer.toString(port)));
        child = new Child(Program.find(), again);
        child.port();
        begin();
    }

    /** Stops the server and waits until it has ended. May be called again. */
    public void stop() {
        // Stop first: threads that wait for a reply hold the locks of the connections.
        child.stop();
        control.close();
        calls.close();
    }

    /** As {@link #stop}. */
    @Override
    public void close() {
        stop();
    }

    /** Runs a command for tests, to which no fault rule applies. */
    Object control(String... command) {
        return control.call(lockwheel(command));
    }

    /** As {@link #control}, on a connection of its own, for commands that block. */
    Object await(String... command) {
        try (var connection = new Connection(port, password)) {
            return connection.call(lockwheel(command));
        }
    }

    /** Makes the next {@link #call} open a new connection. */
    void disconnectCalls() {
        calls.close();
    }

    private static String[] lockwheel(String... command) {
        return Stream.concat(Stream.of("LOCKWHEEL"), Stream.of(command)).toArray(String[]::new);
    }
}
