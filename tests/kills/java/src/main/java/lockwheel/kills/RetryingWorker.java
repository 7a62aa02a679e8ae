// Takes locks with a Redisson that repeats requests.

package lockwheel.kills;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/** A thread that takes its own lock again and again, with a Redisson that repeats requests. */
final class RetryingWorker extends Worker {
    private static final int PAUSE_MS = 10;

    private final RedissonClient server;
    private final int number;

    RetryingWorker(Settings settings, int number, RedissonClient server) {
        super(settings, number);
        this.server = server;
        this.number = number;
    }

    @Override
    void round() {
        RLock lock = server.getLock("retried-" + ownEpoch + "-" + number);
        int leaseMs = settings.leastLeaseMs();
        ask(lock.getName(), "acquire " + leaseMs + "ms", () ->
                lock.tryLock(0, leaseMs, TimeUnit.MILLISECONDS) ? "granted" : "refused");
        try {
            lock.forceUnlock();
        } catch (RedisException notReady) {
            // The next round will see.
        }
        Clients.sleep(PAUSE_MS);
    }

    @Override
    void ping() {}

    @Override
    boolean isLost(Exception problem) {
        return problem instanceof RedisException || problem instanceof InterruptedException;
    }

    @Override
    boolean isRefused(Exception problem) {
        return false;
    }
}
