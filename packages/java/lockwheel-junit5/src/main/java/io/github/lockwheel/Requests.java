// Public API: the conditions that select requests for fault rules and gates.

package io.github.lockwheel;

import java.util.ArrayList;
import java.util.List;

/**
 * The conditions of a fault rule or a gate, all of which a request must match. Patterns are those
 * of {@code KEYS}.
 */
public final class Requests {
    private final List<String> conditions;

    private Requests(List<String> conditions) {
        this.conditions = conditions;
    }

    /**
     * All requests.
     *
     * @return no conditions
     */
    public static Requests any() {
        return new Requests(List.of());
    }

    /**
     * Requests of a command.
     *
     * @param pattern its name, such as {@code eval*}, or {@code client|id} for a subcommand
     * @return these conditions and this one
     */
    public Requests command(String pattern) {
        return with("COMMAND", pattern);
    }

    /**
     * Requests with a key that matches the pattern.
     *
     * @param pattern the pattern, such as {@code lock:*}
     * @return these conditions and this one
     */
    public Requests key(String pattern) {
        return with("KEY", pattern);
    }

    /**
     * Requests of clients with a name.
     *
     * @param pattern the name that {@code CLIENT SETNAME} gave them, such as {@code worker-?}
     * @return these conditions and this one
     */
    public Requests client(String pattern) {
        return with("CLIENT", pattern);
    }

    /**
     * Requests of one client.
     *
     * @param id its {@code CLIENT ID}
     * @return these conditions and this one
     */
    public Requests clientId(long id) {
        return with("ID", Long.toString(id));
    }

    /**
     * Only the n-th of the matching requests.
     *
     * @param n the number, from 1
     * @return these conditions and this one
     */
    public Requests nth(long n) {
        return with("NTH", Long.toString(n));
    }

    /**
     * At most this many of the matching requests.
     *
     * @param count the number
     * @return these conditions and this one
     */
    public Requests times(long count) {
        return with("TIMES", Long.toString(count));
    }

    /**
     * Each of the matching requests with a probability. The same seed selects the same requests.
     *
     * @param probability from 0 to 1
     * @param seed any number
     * @return these conditions and this one
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
