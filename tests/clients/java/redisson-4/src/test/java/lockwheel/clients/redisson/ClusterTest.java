// Runs the contracts on a one-node cluster, with messages on sharded channels.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers;

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
