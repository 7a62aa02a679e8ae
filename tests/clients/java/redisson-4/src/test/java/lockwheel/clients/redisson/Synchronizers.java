// The contracts of all synchronizers with commands that depend on the configuration.

package lockwheel.clients.redisson;

abstract class Synchronizers
        implements LockContract,
                WatchdogContract,
                FairLockContract,
                ReadWriteLockContract,
                SemaphoreContract,
                MultiLockContract,
                PermitsContract,
                RecentLocksContract {
    private final Clients clients;

    Synchronizers(Clients clients) {
        this.clients = clients;
    }

    @Override
    public Clients clients() {
        return clients;
    }
}
