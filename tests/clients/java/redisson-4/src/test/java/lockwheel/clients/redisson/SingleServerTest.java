// Runs every contract on one server.

package lockwheel.clients.redisson;

class SingleServerTest
        implements LockContract,
                WatchdogContract,
                FairLockContract,
                ReadWriteLockContract,
                SemaphoreContract,
                MultiLockContract,
                PermitsContract,
                ObjectsContract,
                RecentLocksContract,
                RecentObjectsContract {
    private static final Clients CLIENTS = Clients.single();

    @Override
    public Clients clients() {
        return CLIENTS;
    }
}
