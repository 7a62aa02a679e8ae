package lockwheel.packages.spring;

import io.github.lockwheel.LockwheelServer;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Connections of Spring's, by Lettuce. */
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
