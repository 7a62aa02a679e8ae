package leasehold.packages.spring;

import io.github.leasehold.LeaseholdServer;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** Connections of Spring's, by Lettuce. */
final class Templates {
    private Templates() {}

    /** What libraries take. It is to be destroyed. */
    static LettuceConnectionFactory connect(LeaseholdServer server) {
        var factory = new LettuceConnectionFactory(
                new RedisStandaloneConfiguration(server.host(), server.port()));
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }
}
