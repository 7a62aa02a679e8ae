// Connections to the main server, with one factory for each simulated process.

package lockwheel.clients.spring;

import lockwheel.clients.Servers;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

final class Connections {
    private Connections() {}

    static LettuceConnectionFactory open() {
        var server = Servers.main();
        var address = new RedisStandaloneConfiguration(server.getHost(), server.getPort());
        var factory = new LettuceConnectionFactory(address);
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }
}
