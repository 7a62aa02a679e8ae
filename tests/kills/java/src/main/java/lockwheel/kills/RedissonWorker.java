// Takes locks with Redisson.

package lockwheel.kills;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.RedisReadonlyException;
import org.redisson.client.RedisRetryException;
import org.redisson.client.RedisTimeoutException;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;

/** A thread that takes locks of Redisson, with leases and with the watchdog. */
final class RedissonWorker extends Worker {
    private final RedissonClient server;

    RedissonWorker(Settings settings, int number, RedissonClient server) {
        super(settings, number);
        this.server = server;
    }

    /** Connects as often as needed. */
    static RedissonClient connect(Settings settings, boolean withoutRetries) {
        while (true) {
            try {
                return Redisson.create(config(settings, withoutRetries));
            } catch (RedisException notReady) {
                Clients.sleep(RETRY_DELAY_MS);
            }
        }
    }

    private static Config config(Settings settings, boolean withoutRetries) {
        Config config = new Config();
        config.setLockWatchdogTimeout(settings.mostLeaseMs());
        String[] servers =
                settings.servers().stream().map(it -> "redis://" + it).toArray(String[]::new);
        BaseConfig<?> mode;
        if (settings.hasSentinels()) {
            mode = config.useSentinelServers()
                    .setMasterName("mymaster")
                    .addSentinelAddress(servers);
        } else if (settings.kind().equals("replicated")) {
            mode = config.useReplicatedServers().addNodeAddress(servers);
        } else {
            mode = config.useSingleServer()
                    .setAddress(servers[0])
                    .setConnectionMinimumIdleSize(2)
                    .setConnectionPoolSize(16);
        }
        if (mode instanceof BaseMasterSlaveServersConfig<?> several) {
            several.setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(2);
        }
        if (withoutRetries) {
            ConstantDelay delay = new ConstantDelay(Duration.ofMillis(RETRY_DELAY_MS));
            mode.setTimeout(settings.replyTimeoutMs())
                    .setConnectTimeout(settings.replyTimeoutMs())
                    .setRetryAttempts(0)
                    .setRetryDelay(delay)
                    .setReconnectionDelay(delay);
        }
        return config;
    }

    @Override
    void round() throws InterruptedException {
        boolean watchdog = random.nextInt(3) == 0;
        int leaseMs = watchdog
                ? settings.mostLeaseMs()
                : between(settings.leastLeaseMs(), settings.mostLeaseMs());
        String kind = watchdog ? "watchdog" : "lease";
        RLock lock = server.getLock(kind + "-" + ownEpoch + "-" + random.nextInt(LOCKS));
        int waitMs = random.nextBoolean() ? 0 : random.nextInt(100);
        if (isNot("granted", acquire(lock, waitMs, leaseMs, watchdog))) {
            Clients.sleep(random.nextInt(10));
            return;
        }
        int holds = 1;
        if (!watchdog && random.nextInt(8) == 0) {
            if (isNot("granted", acquire(lock, 0, leaseMs, false))) {
                return;
            }
            holds = 2;
        }
        Check check = () -> ask(lock.getName(), "check", () ->
                lock.isHeldByCurrentThread() ? "held" : "not-owner");
        if (!hold(leaseMs, check, check)) {
            return;
        }
        for (; holds > 0; holds--) {
            // A holder that goes on starts its lease anew.
            String action = holds > 1 ? "release " + leaseMs + "ms" : "release";
            String released = holds > 1 ? "kept" : "released";
            String answer = ask(lock.getName(), action, () -> unlock(lock, released));
            if (isNot(released, answer)) {
                return;
            }
        }
    }

    private static String unlock(RLock lock, String released) {
        try {
            lock.unlock();
            return released;
        } catch (IllegalMonitorStateException notHeld) {
            return "not-owner";
        }
    }

    private String acquire(RLock lock, int waitMs, int leaseMs, boolean watchdog) {
        return ask(lock.getName(), "acquire " + leaseMs + "ms", () -> {
            long beganNs = System.nanoTime();
            boolean granted = watchdog
                    ? lock.tryLock(waitMs, TimeUnit.MILLISECONDS)
                    : lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
            long elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beganNs);
            if (!granted && elapsedMs >= settings.replyTimeoutMs()) {
                // Redisson also returns false if a later attempt of a waiter gets no reply.
                throw new RedisTimeoutException("perhaps without a reply");
            }
            return granted ? "granted" : "refused";
        });
    }

    @Override
    void ping() {
        // Asked of the master.
        server.getBucket("ready").delete();
    }

    @Override
    boolean isLost(Exception problem) {
        return problem instanceof RedisException || problem instanceof InterruptedException;
    }

    /** A lock may take several requests, of which the last one is refused. */
    @Override
    boolean isRefused(Exception problem) {
        return false;
    }
}
