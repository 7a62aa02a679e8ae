// Runs the quorum contract of Redisson 3.13 on three servers, two of which are killed.

package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers.Slice;

@Setting("three servers")
class ThreeServersTest extends QuorumContract {
    ThreeServersTest() {
        super(Slice.SURVIVORS.servers().subList(0, 1), Slice.REDISSON_3_13.servers());
    }
}
