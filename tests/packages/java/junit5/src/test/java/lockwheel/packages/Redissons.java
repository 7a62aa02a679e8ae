// Clients of Redisson.

package lockwheel.packages;

import io.github.lockwheel.LockwheelServer;
import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

final class Redissons {
    private Redissons() {}

    static RedissonClient of(LockwheelServer server) {
        return Redisson.create(config(server));
    }

    /** A client with a watchdog of this timeout, which renews at every third of it. */
    static RedissonClient withWatchdog(LockwheelServer server, Duration timeout) {
        return Redisson.create(config(server).setLockWatchdogTimeout(timeout.toMillis()));
    }

    /** One that waits for an answer for so long, by its own clock. */
    static RedissonClient withTimeout(LockwheelServer server, Duration timeout) {
        var config = config(server);
        config.useSingleServer().setTimeout((int) timeout.toMillis());
        return Redisson.create(config);
    }

    private static Config config(LockwheelServer server) {
        var config = new Config();
        config.useSingleServer().setAddress(server.url())
                .setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        return config;
    }
}
