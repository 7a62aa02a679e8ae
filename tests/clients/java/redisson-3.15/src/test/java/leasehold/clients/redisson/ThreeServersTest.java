package leasehold.clients.redisson;

import leasehold.clients.Library.Setting;
import leasehold.clients.Servers.Slice;

/** Locks over three servers, of which two die. */
@Setting("three servers")
class ThreeServersTest extends QuorumContract {
    ThreeServersTest() {
        super(Slice.SURVIVORS.servers().subList(0, 1), Slice.REDISSON_3_15.servers());
    }
}
