package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;

/** Nodes that tell by INFO which of them is the master. */
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
