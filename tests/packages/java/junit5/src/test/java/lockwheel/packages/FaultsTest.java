// Tests fault rules and gates with the replies that another library receives.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelException;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.Rule;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

@Lockwheel(frozen = true)
class FaultsTest {
    /** The time-out for replies that do not arrive. */
    private static final int CLIENT_TIMEOUT_MS = 50;
    private static final Requests SET = Requests.any().command("set");

    private LockwheelServer server;
    private Jedis client;

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        client = connection();
    }

    @AfterEach
    void disconnect() {
        client.close();
    }

    private Jedis connection() {
        var connection = new Jedis(server.host(), server.port());
        connection.connect();
        return connection;
    }

    private Jedis impatient() {
        return new Jedis(server.host(), server.port(), CLIENT_TIMEOUT_MS);
    }

    private void breaks(Jedis client) {
        assertThrows(JedisConnectionException.class, () -> client.set("lock", "token"));
    }

    @Test
    void stateHasTheArgumentTheConditionsAndTheCounts() {
        var requests = Requests.any().command("get").key("k*").client("c").clientId(7)
                .nth(2).times(3).probability(0.5, 11);
        var delay = server.faults().add(Fault.delay(Duration.ofSeconds(2)), requests).state();
        assertEquals("delay", delay.action());
        assertEquals(Duration.ofSeconds(2), delay.delay());
        assertEquals("get", delay.command());
        assertEquals("k*", delay.key());
        assertEquals("c", delay.client());
        assertEquals(7L, delay.clientId());
        assertEquals(2L, delay.nth());
        assertEquals(3L, delay.times());
        assertEquals(0.5, delay.probability());
        assertEquals(11L, delay.seed());
        assertEquals(0, delay.matched() + delay.fired());
        assertEquals(List.of(), delay.held());
        assertNull(delay.bytes());
        var jump = Fault.jump(Duration.ofHours(-1));
        assertEquals(Duration.ofHours(-1), server.faults().add(jump, SET).state().jump());
        assertEquals(3L, server.faults().add(Fault.cut(3), SET).state().bytes());
        assertEquals("ERR no", server.faults().add(Fault.error("ERR no"), SET).state().line());
        assertEquals(1L, server.faults().add(Fault.loseWrites(1), SET).state().writes());
        assertEquals("gate", server.faults().gate(SET).state().action());
    }

    @Test
    void closeDoesNotRunIt() {
        server.faults().add(Fault.close(), SET);
        breaks(client);
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void loseAndCloseRunsIt() {
        server.faults().add(Fault.loseAndClose(), SET);
        breaks(client);
        assertEquals("token", server.call("GET", "lock"));
    }

    @Test
    void cutRunsItAndClosesWithinTheAnswer() {
        server.faults().add(Fault.cut(3), SET);
        breaks(client);
        assertEquals("token", server.call("GET", "lock"));
    }

    @Test
    void loseRunsItAndIsSilent() {
        server.faults().add(Fault.lose(), SET);
        breaks(impatient());
        assertEquals("token", server.call("GET", "lock"));
    }

    @Test
    void dropIsSilentAndDoesNotRunIt() {
        server.faults().add(Fault.drop(), SET);
        breaks(impatient());
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void stallReadsNoFurtherUntilItIsCleared() throws Exception {
        Rule rule = server.faults().add(Fault.stall(), SET);
        var set = Later.run(() -> client.set("lock", "token"));
        Later.eventually("it is stalled", () -> rule.fired() == 1);
        assertNull(server.call("GET", "lock"));
        rule.clear();
        assertEquals("OK", set.get());
    }

    @Test
    void aDelayEndsByTheServersClock() throws Exception {
        Rule rule = server.faults().add(Fault.delay(Duration.ofSeconds(2)), SET);
        var set = Later.run(() -> client.set("lock", "token"));
        Later.eventually("it is held", () -> rule.fired() == 1);
        server.clock().advance(Duration.ofMillis(1999));
        assertNull(server.call("GET", "lock"));
        server.clock().advance(Duration.ofMillis(1));
        assertEquals("OK", set.get());
    }

    @Test
    void errorIsAnsweredInstead() {
        server.faults().add(Fault.error("LOADING Redis is loading"), SET);
        var error = assertThrows(JedisDataException.class, () -> client.set("lock", "token"));
        assertEquals("LOADING Redis is loading", error.getMessage());
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void flushScriptsForgetsThem() {
        String script = client.scriptLoad("return 1");
        server.faults().add(Fault.flushScripts(), Requests.any().command("evalsha").nth(2));
        assertEquals(1L, client.evalsha(script));
        assertThrows(JedisDataException.class, () -> client.evalsha(script));
    }

    @Test
    void aJumpFollowsTheRequest() {
        server.faults().add(Fault.jump(Duration.ofHours(1)), SET);
        client.psetex("lease", 1000L, "token");
        client.set("lock", "token");
        assertNull(client.get("lease"));
    }

    @Test
    void loseWritesUndoesThem() {
        server.faults().add(Fault.loseWrites(1), SET);
        assertEquals("OK", client.set("lock", "token"));
        assertNull(client.get("lock"));
    }

    @Test
    void refuseClosesNewConnections() {
        Rule rule = server.faults().add(Fault.refuse());
        assertThrows(JedisConnectionException.class, () -> connection().ping());
        assertEquals("PONG", client.ping(), "the others stay");
        rule.clear();
        assertEquals("PONG", connection().ping());
    }

    @Test
    void failoverLosesTheLastWriteAndDisconnects() {
        client.set("first", "token");
        client.set("second", "token");
        assertEquals(1, server.faults().failover(1));
        assertThrows(JedisConnectionException.class, client::ping);
        assertEquals("token", connection().get("first"));
        assertNull(connection().get("second"));
    }

    @Test
    void conditionsChooseAmongRequests() {
        client.clientSetname("worker-1");
        var faults = server.faults();
        faults.add(Fault.error("ERR by key"), Requests.any().key("lock:*").command("get"));
        faults.add(Fault.error("ERR by id"),
                Requests.any().clientId(client.clientId()).command("del"));
        faults.add(Fault.error("ERR by name"), Requests.any().client("worker-?").command("ttl"));
        faults.add(Fault.error("ERR no more"), Requests.any().command("exists").times(2));
        faults.add(Fault.error("ERR surely"), Requests.any().command("type").probability(1, 42));
        assertNull(client.get("other"));
        assertThrows(JedisDataException.class, () -> client.get("lock:1"));
        assertThrows(JedisDataException.class, () -> client.del("other"));
        assertEquals(0L, connection().del("other"));
        assertThrows(JedisDataException.class, () -> client.ttl("other"));
        assertEquals(-2L, connection().ttl("other"));
        assertThrows(JedisDataException.class, () -> client.exists("other"));
        assertThrows(JedisDataException.class, () -> client.exists("other"));
        assertFalse(client.exists("other"));
        assertThrows(JedisDataException.class, () -> client.type("other"));
    }

    @Test
    void aRuleCountsItsRequests() {
        Rule rule = server.faults().add(Fault.close(), SET.nth(2));
        client.set("lock", "one");
        assertEquals(1, rule.matched());
        assertEquals(0, rule.fired());
        breaks(client);
        assertEquals(2, rule.matched());
        assertEquals(1, rule.fired());
        assertEquals("close", rule.action());
        assertEquals(List.of(rule), server.faults().list());
        rule.clear();
        assertEquals(List.of(), server.faults().list());
        var error = assertThrows(LockwheelException.class, rule::fired);
        assertTrue(error.getMessage().contains("rule or gate " + rule.number()));
        server.faults().add(Fault.close());
        server.faults().clear();
        assertEquals("PONG", connection().ping());
    }

    @Test
    void aGateHoldsClientsUntilItIsOpened() throws Exception {
        client.set("lock", "a");
        var gate = server.faults().gate(Requests.any().command("del"));
        long id = client.clientId();
        var delete = Later.run(() -> client.del("lock"));
        assertEquals(id, gate.await());
        assertEquals(List.of(id), gate.held());
        assertEquals("a", server.call("GET", "lock"), "and everything else goes on");
        assertFalse(delete.isDone());
        assertEquals(1, gate.open());
        assertEquals(1L, delete.get());
        assertThrows(LockwheelException.class, gate::open);
    }
}
