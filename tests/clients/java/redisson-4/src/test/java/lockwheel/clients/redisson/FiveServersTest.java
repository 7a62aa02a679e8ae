package lockwheel.clients.redisson;

import lockwheel.clients.Library.Setting;
import lockwheel.clients.Servers.Slice;

/** Locks over five servers, of which three die. */
@Setting("five servers")
class FiveServersTest extends QuorumContract {
    FiveServersTest() {
        super(Slice.SURVIVORS.servers(), Slice.REDISSON_4_OF_FIVE.servers());
    }
}
