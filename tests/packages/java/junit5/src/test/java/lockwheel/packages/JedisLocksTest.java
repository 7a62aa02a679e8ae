// Tests lock objects over Jedis.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.Requests;
import io.github.lockwheel.locks.JedisLocks;
import io.github.lockwheel.locks.Locks;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

class JedisLocksTest extends LocksContract {
    private static RedisClient client(int port, DefaultJedisClientConfig.Builder settings) {
        // One connection, so that the locks cannot use it.
        var pool = new ConnectionPoolConfig();
        pool.setMaxTotal(1);
        return RedisClient.builder().hostAndPort("127.0.0.1", port)
                .clientConfig(settings.build()).poolConfig(pool).build();
    }

    @Override
    Locks locks(int port, String name) {
        return new JedisLocks(client(port, DefaultJedisClientConfig.builder().clientName(name)));
    }

    @Override
    Locks locks(int port, String name, String password, int database, int protocol) {
        return new JedisLocks(client(port, DefaultJedisClientConfig.builder()
                .clientName(name).password(password).database(database)
                .protocol(protocol == 2 ? RedisProtocol.RESP2 : RedisProtocol.RESP3)));
    }

    @Override
    Class<? extends RuntimeException> replyError() {
        return JedisDataException.class;
    }

    @Override
    List<String> otherJars() {
        return List.of("lettuce", "netty", "reactor");
    }

    /** Holds a lock of the server with this port. */
    public static void main(String[] arguments) throws Exception {
        hold(new JedisLocksTest().locks(Integer.parseInt(arguments[0]), "holder"));
    }

    @Test
    void theLimitOfTheClientDoesNotApplyToWaiting() throws Exception {
        try (var client = client(server.port(), DefaultJedisClientConfig.builder())) {
            var locks = new JedisLocks(client);
            var holder = locks.lock("lock", TTL).build().acquire();
            var waiter = locks.lock("lock", TTL).waitFor(Duration.ofMinutes(1)).build();
            var acquires = Later.run(waiter::tryAcquire);
            Later.eventually("it waits", () -> server.call("LOCK.INFO", "lock").toString()
                    .contains(waiter.owner()));
            server.faults().add(Fault.drop(), Requests.any().command("get"));
            assertThrows(JedisConnectionException.class, () -> client.get("key"));
            assertTrue(holder.release());
            assertTrue(acquires.get());
            assertTrue(waiter.release());
        }
    }
}
