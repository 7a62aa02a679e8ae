package leasehold.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.leasehold.LeaseholdServer;
import io.github.leasehold.junit5.Leasehold;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.params.SetParams;

/** A server, from its start to its end. */
class ServerTest {
    @Test
    @Leasehold(frozen = true)
    void aLeaseEndsWhenTheClockSaysSo(LeaseholdServer server) {
        try (var client = RedisClient.create(server.url())) {
            client.set("lock", "token", SetParams.setParams().nx().px(30_000));
            server.clock().advance(Duration.ofMillis(29_999));
            assertEquals("token", client.get("lock"));
            server.clock().advance(Duration.ofMillis(1));
            assertNull(client.get("lock"));
        }
    }
}
