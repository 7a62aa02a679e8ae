package leasehold.launchers.kstyrc;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import leasehold.launchers.EmbeddedRedisContract;
import leasehold.launchers.Launched;
import org.junit.jupiter.api.BeforeEach;
import redis.embedded.RedisExecProvider;
import redis.embedded.RedisServer;
import redis.embedded.util.OS;

class KstyrcTest extends EmbeddedRedisContract {
    /** It waits for words that Redis has not said since 4.0, and waits for ever. */
    @BeforeEach
    void saysWhatItWaitsFor() throws Exception {
        var version = new ProcessBuilder(program().getPath(), "--version").start();
        var line = new String(version.getInputStream().readAllBytes(), UTF_8);
        assumeTrue(line.contains("leasehold=") || line.matches("(?s)Redis server v=[23]\\..*"),
                "waits for words that this server does not say");
    }

    @Override
    protected String whose() {
        return "kstyrc";
    }

    @Override
    protected Launched launch(File program, int port, String... settings) throws Exception {
        if (settings.length == 0) {
            return new Embedded(new RedisServer(program, port));
        }
        var provider = RedisExecProvider.defaultProvider().override(OS.UNIX, program.getPath());
        var builder = RedisServer.builder().redisExecProvider(provider).port(port);
        for (var setting : settings) {
            builder.setting(setting);
        }
        return new Embedded(builder.build());
    }

    private record Embedded(RedisServer itself) implements Launched {
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
