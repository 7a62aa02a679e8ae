package leasehold.clients.redisson;

import leasehold.clients.Contention;
import leasehold.clients.Contention.Guard;
import leasehold.clients.Library.Setting;
import leasehold.clients.Servers.Slice;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;

/** Locks over three servers, of which two die. */
@Setting("three servers")
class ThreeServersTest extends QuorumContract {
    ThreeServersTest() {
        super(Slice.SURVIVORS.servers().subList(0, 1), Slice.REDISSON_2_2.servers());
    }

    @Override
    @Test
    @Order(1)
    @DisplayName("RedLock: one holder at a time under contention")
    void redLockExcludes() throws Exception {
        // Its lock() cannot be waited in: see SingleServerTest.
        var name = Contract.fresh("red");
        Contention.exclusive(3, 5, worker -> Guard.retrying(redLock(worker, name)));
    }
}
