package lockwheel.clients.redisson;

/** The contracts of this version, over one plain server. */
class SingleServerTest
        implements LockContract,
                WatchdogContract,
                FairLockContract,
                ReadWriteLockContract,
                SemaphoreContract,
                MultiLockContract,
                PermitsContract,
                ObjectsContract {
    private static final Clients CLIENTS = Clients.single();

    @Override
    public Clients clients() {
        return CLIENTS;
    }
}
