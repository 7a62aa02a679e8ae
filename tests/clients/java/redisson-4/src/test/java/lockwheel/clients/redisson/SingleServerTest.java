package lockwheel.clients.redisson;

/** Every contract, over one plain server. */
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
