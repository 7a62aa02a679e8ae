// Runs the contracts of Redisson 3.15 on one server.

package lockwheel.clients.redisson;

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
