// The test with Lockwheel on docs/coming-from.md beside that with embedded-redis.

package lockwheel.packages.comingfrom;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.SetParams;

@Lockwheel(frozen = true)
class StockLockTest {
    static final SetParams LEASE = SetParams.setParams().nx().px(30_000);

    @Test
    void aLockEndsWithItsLease(LockwheelServer server) {
        try (var redis = RedisClient.create(server.url())) {
            assertEquals("OK", redis.set("lock:stock:42", "first", LEASE));
            assertNull(redis.set("lock:stock:42", "second", LEASE));
            server.clock().advance(Duration.ofSeconds(30)); // The lease ends here.
            assertEquals("OK", redis.set("lock:stock:42", "second", LEASE));
        }
    }
}
