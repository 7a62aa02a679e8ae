package leasehold.packages.readme;

import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.leasehold.LeaseholdServer;
import io.github.leasehold.junit5.Leasehold;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.SetParams;

@Leasehold(frozen = true)
class InvoiceTest {
    @Test
    void aLockEndsIfItsOwnerDies(LeaseholdServer server) {
        try (var redis = RedisClient.create(server.url())) {
            redis.set("lock:invoice", "token", SetParams.setParams().nx().px(30_000));
            server.clock().advance(Duration.ofSeconds(30)); // Nobody had to wait for it.
            assertNull(redis.get("lock:invoice"));
        }
    }
}
