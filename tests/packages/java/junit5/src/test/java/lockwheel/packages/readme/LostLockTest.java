// The README's example of a lost lock.

package lockwheel.packages.readme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import io.github.lockwheel.locks.JedisLocks;
import io.github.lockwheel.locks.NativeLock;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;

@Lockwheel(frozen = true)
class LostLockTest {
    @Test
    void aLockIsLost(LockwheelServer server) throws Exception {
        var lost = new CompletableFuture<NativeLock>();
        try (var redis = RedisClient.create(server.url())) {
            var lock = new JedisLocks(redis).lock("invoice:7", Duration.ofSeconds(30))
                    .renewEvery(Duration.ofMillis(10)).onLost(lost::complete).build();
            lock.acquire();
            server.clock().advance(Duration.ofSeconds(30));
            assertEquals(lock, lost.get());
            assertFalse(lock.release());
        }
    }
}
