package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers.Slice;

/** Locks over three servers, of which two die. */
@Setting("three servers")
class ThreeServersTest extends QuorumContract {
    ThreeServersTest() {
        super(Slice.SURVIVORS.servers().subList(0, 1), Slice.REDISSON_3_15.servers());
    }
}
