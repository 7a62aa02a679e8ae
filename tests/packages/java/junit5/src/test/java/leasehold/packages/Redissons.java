package leasehold.packages;

import io.github.leasehold.LeaseholdServer;
import java.time.Duration;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Clients of Redisson. */
final class Redissons {
    private Redissons() {}

    static RedissonClient of(LeaseholdServer server) {
        return withWatchdog(server, Duration.ofSeconds(30));
    }

    /** One whose locks last for so long, and are renewed every third of it. */
    static RedissonClient withWatchdog(LeaseholdServer server, Duration timeout) {
        var config = new Config().setLockWatchdogTimeout(timeout.toMillis());
        config.useSingleServer().setAddress(server.url())
                .setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }
}
