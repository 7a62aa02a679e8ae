// Runs the contract on the fork of codemonstur.

package lockwheel.launchers.codemonstur;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.util.List;
import lockwheel.launchers.EmbeddedRedisContract;
import lockwheel.launchers.Launched;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.embedded.RedisInstance;
import redis.embedded.RedisSentinel;
import redis.embedded.RedisServer;
import redis.embedded.core.ExecutableProvider;

class CodemonsturTest extends EmbeddedRedisContract {
    @Override
    protected String vendor() {
        return "codemonstur";
    }

    @Override
    protected Launched launch(File program, int port, String... settings) throws Exception {
        if (settings.length == 0) {
            return new Embedded(new RedisServer(port, program));
        }
        // Its own variable is EMBEDDED_REDIS_EXECUTABLE.
        var provider = ExecutableProvider.newEnvironmentVariableProvider("REDIS_SERVER");
        var builder = RedisServer.newRedisServer().executableProvider(provider).port(port);
        List.of(settings).forEach(builder::setting);
        return new Embedded(builder.build());
    }

    @Test
    @DisplayName("starts a sentinel that watches a server")
    void startsASentinel() throws Exception {
        int port = freePort();
        int sentinelPort = freePort();
        var server = launched(port);
        server.start();
        var sentinel = new Embedded(RedisSentinel.newRedisSentinel()
                .executableProvider(EmbeddedRedisContract::program)
                .port(sentinelPort)
                .masterName("mymaster")
                .masterPort(port)
                .build());
        sentinel.start();
        try (var jedis = new Jedis("127.0.0.1", sentinelPort)) {
            var address = jedis.sentinelGetMasterAddrByName("mymaster");
            assertEquals(List.of("127.0.0.1", Integer.toString(port)), address);
        }
        sentinel.stop();
        assertEquals(0, process(sentinel).waitFor());
        server.stop();
    }

    private record Embedded(RedisInstance itself) implements Launched {
        @Override
        public void start() throws Exception {
            itself.start();
        }

        @Override
        public void stop() throws Exception {
            itself.stop();
        }

        @Override
        public boolean isActive() {
            return itself.isActive();
        }
    }
}
