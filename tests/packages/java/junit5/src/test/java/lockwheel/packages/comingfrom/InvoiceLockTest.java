// The test with Lockwheel on docs/coming-from.md beside that with jedis-mock.

package lockwheel.packages.comingfrom;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

@Lockwheel(frozen = true)
class InvoiceLockTest {
    static final SetParams LEASE = SetParams.setParams().nx().px(30_000);

    @Test
    void aLockEndsWithItsLease(LockwheelServer server) {
        try (var redis = new Jedis(server.host(), server.port())) {
            assertEquals("OK", redis.set("lock:invoice:7", "first", LEASE));
            assertNull(redis.set("lock:invoice:7", "second", LEASE));
            server.clock().advance(Duration.ofSeconds(30)); // The lease ends here.
            assertEquals("OK", redis.set("lock:invoice:7", "second", LEASE));
        }
    }
}
