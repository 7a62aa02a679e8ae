// Runs the contracts on a server that is configured as both master and slave.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;

@Setting("master and slave")
class MasterSlaveTest extends Synchronizers {
    private static final Clients CLIENTS =
            new Clients(Servers::main, "CHANNELS", config -> config
                    .useMasterSlaveServers()
                    .setMasterAddress(Servers.main().toString())
                    .addSlaveAddress(Servers.main().toString()));

    MasterSlaveTest() {
        super(CLIENTS);
    }
}
