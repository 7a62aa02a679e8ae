package leasehold.clients.redisson;

import leasehold.clients.Library.Setting;
import leasehold.clients.Servers;
import org.redisson.config.ReadMode;

/** The configuration of a master and its slaves, with none of these. */
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
