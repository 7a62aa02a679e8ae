// Runs the contracts with the master-slave configuration and no slaves.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;
import org.redisson.config.ReadMode;

@Setting("master without slaves")
class MasterTest extends Synchronizers {
    private static final Clients CLIENTS =
            new Clients(Servers::main, "CHANNELS", config -> config
                    .useMasterSlaveServers()
                    .setReadMode(ReadMode.MASTER)
                    .setMasterAddress(Servers.main().toString()));

    MasterTest() {
        super(CLIENTS);
    }
}
