// The contract for forks that have kept the classes of the first embedded-redis.

package lockwheel.launchers;

import java.io.File;
import redis.embedded.RedisExecProvider;
import redis.embedded.RedisServer;
import redis.embedded.util.OS;

/**
 * A fork that has kept the classes of the first embedded-redis. Compiled in the module of each, with
 * its own.
 */
public abstract class OriginalApiContract extends EmbeddedRedisContract {
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
