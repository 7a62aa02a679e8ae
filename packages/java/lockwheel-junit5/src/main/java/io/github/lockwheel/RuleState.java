// Public API: a fault rule or a gate as the server lists it.

package io.github.lockwheel;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** The state of a fault rule or a gate: its action, its conditions and its counts. */
public final class RuleState {
    private final Map<String, Object> fields;

    RuleState(Map<String, Object> fields) {
        this.fields = fields;
    }

    /**
     * The number of the rule or gate.
     *
     * @return the number on its server
     */
    public long number() {
        return (Long) fields.get("id");
    }

    /**
     * The action.
     *
     * @return such as {@code lose-and-close}; {@code gate} for a gate
     */
    public String action() {
        return (String) fields.get("action");
    }

    /**
     * The span of a delay.
     *
     * @return the span; null for other actions
     */
    public Duration delay() {
        return duration("delay_ms");
    }

    /**
     * The length of the reply that is sent before the connection is cut.
     *
     * @return the bytes; null for other actions
     */
    public Long bytes() {
        return (Long) fields.get("bytes");
    }

    /**
     * The error that is returned.
     *
     * @return the line; null for other actions
     */
    public String line() {
        return (String) fields.get("line");
    }

    /**
     * The span of a jump.
     *
     * @return the span; null for other actions
     */
    public Duration jump() {
        return duration("jump_ms");
    }

    /**
     * The writes that are lost.
     *
     * @return their number; null for other actions
     */
    public Long writes() {
        return (Long) fields.get("writes");
    }

    /**
     * The pattern of the client's name.
     *
     * @return the pattern; null without this condition
     */
    public String client() {
        return (String) fields.get("client");
    }

    /**
     * The {@code CLIENT ID} of the client.
     *
     * @return the id; null without this condition
     */
    public Long clientId() {
        return (Long) fields.get("client_id");
    }

    /**
     * The pattern of the command.
     *
     * @return the pattern; null without this condition
     */
    public String command() {
        return (String) fields.get("command");
    }

    /**
     * The pattern of a key.
     *
     * @return the pattern; null without this condition
     */
    public String key() {
        return (String) fields.get("key");
    }

    /**
     * The number of the only request that it is applied to.
     *
     * @return the number; null without this condition
     */
    public Long nth() {
        return (Long) fields.get("nth");
    }

    /**
     * The number of requests that it is applied to at most.
     *
     * @return the number; null without this condition
     */
    public Long times() {
        return (Long) fields.get("times");
    }

    /**
     * The probability with which it is applied to a request.
     *
     * @return from 0 to 1; null without this condition
     */
    public Double probability() {
        return probabilityOf((Number) fields.get("probability"));
    }

    /**
     * The seed of the choice of requests.
     *
     * @return the seed; null without this condition
     */
    public Long seed() {
        return (Long) fields.get("seed");
    }

    /**
     * The number of requests that matched the conditions on the request.
     *
     * @return the number
     */
    public long matched() {
        return (Long) fields.get("matched");
    }

    /**
     * The number of requests that it was applied to.
     *
     * @return the number
     */
    public long fired() {
        return (Long) fields.get("fired");
    }

    /**
     * The clients that it holds.
     *
     * @return the {@code CLIENT ID} of each
     */
    public List<Long> held() {
        return Json.list(fields.get("held")).stream().map(Long.class::cast)
            .collect(Collectors.toUnmodifiableList());
    }

    private Duration duration(String field) {
        Object milliseconds = fields.get(field);
        return milliseconds == null ? null : Duration.ofMillis((Long) milliseconds);
    }

    private static Double probabilityOf(Number number) {
        return number == null ? null : Double.valueOf(number.doubleValue());
    }

    /** The fields as text. */
    @Override
    public String toString() {
        return fields.toString();
    }
}
