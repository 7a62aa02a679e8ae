// Public API: the fault rules and gates of a server.

package io.github.lockwheel;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The fault rules and gates of a server. The first matching rule applies to a request.
 *
 * <p>All methods throw {@link LockwheelException} if the server refuses or has ended.
 */
public final class Faults {
    private final LockwheelServer server;

    Faults(LockwheelServer server) {
        this.server = server;
    }

    /**
     * Adds a rule for every request, after the other rules.
     *
     * @param fault the effect
     * @return the rule
     */
    public Rule add(Fault fault) {
        return add(fault, Requests.any());
    }

    /**
     * Adds a rule for some requests, after the other rules.
     *
     * @param fault the effect
     * @param requests the requests
     * @return the rule
     */
    public Rule add(Fault fault, Requests requests) {
        return new Rule(server, (Long) control("FAULT", "ADD", fault.words(), requests));
    }

    /**
     * Adds a gate, which holds matching requests before they run.
     *
     * @param requests the requests
     * @return the gate
     */
    public Gate gate(Requests requests) {
        return new Gate(server, (Long) control("GATE", "ADD", List.of(), requests));
    }

    private Object control(String what, String how, List<String> action, Requests requests) {
        var words = Stream.of(List.of(what, how), action, requests.conditions());
        return server.control(words.flatMap(List::stream).toArray(String[]::new));
    }

    /**
     * Lists the rules.
     *
     * @return all rules except gates
     */
    public List<Rule> list() {
        return listed("FAULT").map(rule -> new Rule(server, rule.number()))
                .collect(Collectors.toUnmodifiableList());
    }

    /** Removes all rules except gates. */
    public void clear() {
        server.control("FAULT", "CLEAR");
    }

    /**
     * Simulates a failover to a replica that lacks the last writes: undoes them, removes all
     * scripts and disconnects all clients.
     *
     * @param writes the number of writes to undo
     * @return the number of undone writes
     */
    public long failover(int writes) {
        Object undone = server.control("FAILOVER", "LOSE", Integer.toString(writes));
        server.disconnectCalls();
        return (Long) undone;
    }

    private Stream<RuleState> listed(String what) {
        return Json.list(Json.parse((String) server.control(what, "LIST"))).stream()
                .map(Json::object).map(RuleState::new);
    }

    /** The state of one rule or gate. */
    RuleState listed(String what, long number) {
        return listed(what).filter(rule -> rule.number() == number).findFirst().orElseThrow(
                () -> new LockwheelException("there is no rule or gate " + number));
    }
}
