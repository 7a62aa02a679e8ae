// Runs the contracts with the configuration of replicated nodes; INFO names the master.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;

@Setting("replicated")
class ReplicatedTest extends Synchronizers {
    private static final Clients CLIENTS =
            new Clients(Servers::main, "CHANNELS", config -> config
                    .useReplicatedServers()
                    .addNodeAddress(Servers.main().toString()));

    ReplicatedTest() {
        super(CLIENTS);
    }
}
