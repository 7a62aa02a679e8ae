package leasehold.clients.redisson;

import leasehold.clients.Library.Setting;
import leasehold.clients.Servers;

/** One node that owns all slots; messages go through sharded channels. */
@Setting("cluster")
class ClusterTest extends Synchronizers implements ObjectsContract, RecentObjectsContract {
    private static final Clients CLIENTS =
            new Clients(Servers::cluster, "SHARDCHANNELS", config -> config
                    .useClusterServers()
                    .addNodeAddress(Servers.cluster().toString()));

    ClusterTest() {
        super(CLIENTS);
    }
}
