// The test with Lockwheel on docs/coming-from.md beside that with Testcontainers.

package lockwheel.packages.comingfrom;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.config.Config;

@Lockwheel(frozen = true)
class ReportLockTest {
    @Test
    void aLockEndsWithItsLease(LockwheelServer server) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress(server.url());
        var redisson = Redisson.create(config);
        var lock = redisson.getLock("report");
        lock.lock(30, TimeUnit.SECONDS);
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get());
        server.clock().advance(Duration.ofSeconds(30)); // The lease ends here.
        assertTrue(CompletableFuture.supplyAsync(lock::tryLock).get());
        redisson.shutdown();
    }
}
