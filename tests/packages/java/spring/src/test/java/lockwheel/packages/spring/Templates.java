// Connections of Spring Data Redis with Lettuce.

package lockwheel.packages.spring;

import io.github.lockwheel.LockwheelServer;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

final class Templates {
    private Templates() {}

    /** What libraries take. It is to be destroyed. */
    static LettuceConnectionFactory connect(LockwheelServer server) {
        var factory = new LettuceConnectionFactory(
                new RedisStandaloneConfiguration(server.host(), server.port()));
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }
}
