package leasehold.launchers.ozimov;

import java.io.File;
import leasehold.launchers.EmbeddedRedisContract;
import leasehold.launchers.Launched;
import redis.embedded.RedisExecProvider;
import redis.embedded.RedisServer;
import redis.embedded.util.OS;

class OzimovTest extends EmbeddedRedisContract {
    @Override
    protected String whose() {
        return "ozimov";
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
