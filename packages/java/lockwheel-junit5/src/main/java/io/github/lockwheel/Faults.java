package io.github.lockwheel;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What goes wrong with requests, and who is held before one. The first rule that is for a request
 * decides what becomes of it.
 *
 * <p>All methods throw {@link LockwheelException} if the server refuses or has ended.
 */
public final class Faults {
    private final LockwheelServer server;

    Faults(LockwheelServer server) {
        this.server = server;
    }

    /**
     * Has something go wrong with every request.
     *
     * @param fault what
     * @return the rule
     */
    public Rule add(Fault fault) {
        return add(fault, Requests.any());
    }

    /**
     * Has something go wrong with some requests.
     *
     * @param fault what
     * @param requests with which
     * @return the rule
     */
    public Rule add(Fault fault, Requests requests) {
        return new Rule(server, (Long) control("FAULT", "ADD", fault.words(), requests));
    }

    /**
     * Holds every client before such a request, while everything else goes on.
     *
     * @param requests which
     * @return the gate, at which they are held
     */
    public Gate gate(Requests requests) {
        return new Gate(server, (Long) control("GATE", "ADD", List.of(), requests));
    }

    private Object control(String what, String how, List<String> action, Requests requests) {
        var words = Stream.of(List.of(what, how), action, requests.conditions());
        return server.control(words.flatMap(List::stream).toArray(String[]::new));
    }

    /**
     * The rules there are.
     *
     * @return all but gates
     */
    public List<Rule> list() {
        return told("FAULT").map(rule -> new Rule(server, (Long) rule.get("id")))
                .collect(Collectors.toUnmodifiableList());
    }

    /** Removes all rules but gates. */
    public void clear() {
        server.control("FAULT", "CLEAR");
    }

    /** Opens all gates. */
    void openGates() {
        told("GATE").forEach(gate -> new Gate(server, (Long) gate.get("id")).open());
    }

    /**
     * Does what a failover does to a server whose replica had not heard of the last writes: they
     * are undone, scripts are forgotten, and every client is disconnected.
     *
     * @param writes how many are undone
     * @return how many were
     */
    public long failover(int writes) {
        Object undone = server.control("FAILOVER", "LOSE", Integer.toString(writes));
        server.disconnectCalls();
        return (Long) undone;
    }

    private Stream<Map<String, Object>> told(String what) {
        return Json.list(Json.parse((String) server.control(what, "LIST"))).stream()
                .map(Json::object);
    }

    /** What is told of one rule or gate, by its number. */
    Map<String, Object> told(String what, long number) {
        return told(what).filter(rule -> rule.get("id").equals(number)).findFirst().orElseThrow(
                () -> new LockwheelException("there is no rule or gate " + number + " any more"));
    }
}
