package io.github.lockwheel;

import java.util.ArrayList;
import java.util.List;

/**
 * Which requests a fault or a gate is for: those that meet every condition. Patterns are Redis's,
 * as in {@code KEYS}.
 */
public final class Requests {
    private final List<String> conditions;

    private Requests(List<String> conditions) {
        this.conditions = conditions;
    }

    /**
     * All of them.
     *
     * @return the requests, to which conditions may be added
     */
    public static Requests any() {
        return new Requests(List.of());
    }

    /**
     * Those of a command.
     *
     * @param pattern its name, such as {@code eval*}, or {@code client|id} for a subcommand
     * @return these requests and no others
     */
    public Requests command(String pattern) {
        return with("COMMAND", pattern);
    }

    /**
     * Those of which one key is like this.
     *
     * @param pattern such as {@code lock:*}
     * @return these requests and no others
     */
    public Requests key(String pattern) {
        return with("KEY", pattern);
    }

    /**
     * Those of clients with a name.
     *
     * @param pattern the name that {@code CLIENT SETNAME} gave them, such as {@code worker-?}
     * @return these requests and no others
     */
    public Requests client(String pattern) {
        return with("CLIENT", pattern);
    }

    /**
     * Those of one client.
     *
     * @param id its {@code CLIENT ID}
     * @return these requests and no others
     */
    public Requests clientId(long id) {
        return with("ID", Long.toString(id));
    }

    /**
     * Only one of them.
     *
     * @param n which, counted from 1
     * @return this request and no others
     */
    public Requests nth(long n) {
        return with("NTH", Long.toString(n));
    }

    /**
     * No more than so many of them.
     *
     * @param count how many
     * @return these requests and no others
     */
    public Requests times(long count) {
        return with("TIMES", Long.toString(count));
    }

    /**
     * Each of them with a probability. The same seed chooses the same ones.
     *
     * @param probability from 0 to 1
     * @param seed any number
     * @return these requests and no others
     */
    public Requests probability(double probability, long seed) {
        return with("PROBABILITY", Double.toString(probability))
                .with("SEED", Long.toString(seed));
    }

    private Requests with(String condition, String value) {
        var more = new ArrayList<>(conditions);
        more.add(condition);
        more.add(value);
        return new Requests(more);
    }

    List<String> conditions() {
        return conditions;
    }
}
