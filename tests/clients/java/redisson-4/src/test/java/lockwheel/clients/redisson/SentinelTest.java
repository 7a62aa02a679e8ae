// Runs the contracts on a master that a sentinel names.

package lockwheel.clients.redisson;

import java.net.URI;
import lockwheel.clients.Library.Setting;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;

@Setting("sentinel")
class SentinelTest extends Synchronizers {
    private static final Clients CLIENTS =
            new Clients(SentinelTest::master, "CHANNELS", config -> config
                    .useSentinelServers()
                    .setMasterName("mymaster")
                    .setCheckSentinelsList(false)
                    .addSentinelAddress(Servers.sentinel().toString()));

    SentinelTest() {
        super(CLIENTS);
    }

    private static URI master() {
        try (var sentinel = new Redis(Servers.sentinel())) {
            var address = sentinel.list("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster");
            return URI.create("redis://" + String.join(":", address));
        }
    }
}
