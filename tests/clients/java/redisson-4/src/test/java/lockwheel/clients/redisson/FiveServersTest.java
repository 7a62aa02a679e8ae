// Runs the quorum contract on five servers, three of which are killed.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers.Slice;

@Setting("five servers")
class FiveServersTest extends QuorumContract {
    FiveServersTest() {
        super(Slice.SURVIVORS.servers(), Slice.REDISSON_4_OF_FIVE.servers());
    }
}
