// The README's first example.

package lockwheel.packages.readme;

import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.SetParams;

@Lockwheel(frozen = true)
class InvoiceTest {
    @Test
    void aLockEndsIfItsOwnerDies(LockwheelServer server) {
        try (var redis = RedisClient.create(server.url())) {
            redis.set("lock:invoice", "token", SetParams.setParams().nx().px(30_000));
            server.clock().advance(Duration.ofSeconds(30)); // The lease ends here.
            assertNull(redis.get("lock:invoice"));
        }
    }
}
