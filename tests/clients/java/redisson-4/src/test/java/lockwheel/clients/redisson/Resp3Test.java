// Runs the contracts on one server with RESP3.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;
import org.redisson.config.Protocol;

@Setting("RESP3")
class Resp3Test extends Synchronizers implements ObjectsContract, RecentObjectsContract {
    private static final Clients CLIENTS =
            new Clients(Servers::main, "CHANNELS", config -> config
                    .setProtocol(Protocol.RESP3)
                    .useSingleServer()
                    .setAddress(Servers.main().toString()));

    Resp3Test() {
        super(CLIENTS);
    }
}
