// Takes and releases locks with Redisson until its input ends, and writes what it asked and was
// answered: see tests/src/bin/kills/main.rs.

package lockwheel.kills;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.RedisTimeoutException;
import org.redisson.config.ConstantDelay;
import org.redisson.config.Config;

/**
 * The clients. A line of the input is the number of an epoch. Each epoch has locks of its own. A
 * line of the output is an event in the form of server/compat/src/history.rs, with the prefix
 * `late` if the request may still take effect, or `epoch THREAD NUMBER`, or `problem TEXT`.
 */
public final class Clients {
    private static final int LOCKS = 5;
    private static final int RETRY_DELAY_MS = 5;
    private static final ConstantDelay RETRY_DELAY =
            new ConstantDelay(java.time.Duration.ofMillis(RETRY_DELAY_MS));
    /** Redisson notices at once that a connection is closed, except in some cases. */
    private static final int REPLY_TIMEOUT_MS = 1000;

    private static final PrintStream OUTPUT =
            new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    private static volatile int epoch;
    private static volatile boolean ended;

    private final String name;
    private final Random random;
    private final RedissonClient server;
    private final int leastLeaseMs;
    private final int mostLeaseMs;
    private int ownEpoch = -1;
    private int rounds;
    private RLock lock;
    private String owner;

    private Clients(RedissonClient server, int number, int[] settings) {
        this.server = server;
        this.name = "redisson-" + number;
        this.random = new Random(settings[1] * 1000L + number);
        this.leastLeaseMs = settings[3];
        this.mostLeaseMs = settings[4];
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        int[] settings = new int[arguments.length];
        for (int place = 0; place < settings.length; place++) {
            settings[place] = Integer.parseInt(arguments[place]);
        }
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        epoch = Integer.parseInt(input.readLine());
        RedissonClient server = connect(settings[0], settings[4]);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < settings[2]; number++) {
            Thread thread = new Thread(new Clients(server, number, settings)::run);
            thread.start();
            threads.add(thread);
        }
        String line;
        while ((line = input.readLine()) != null) {
            epoch = Integer.parseInt(line);
        }
        ended = true;
        for (Thread thread : threads) {
            thread.join();
        }
        // Not `shutdown`, which waits: nothing is left to do.
        Runtime.getRuntime().halt(0);
    }

    /**
     * Connects as often as needed. Without retries: a request whose answer is lost must not be
     * repeated unnoticed.
     */
    private static RedissonClient connect(int port, int watchdogLeaseMs) {
        while (true) {
            try {
                Config config = new Config();
                config.setLockWatchdogTimeout(watchdogLeaseMs);
                config.useSingleServer()
                        .setAddress("redis://127.0.0.1:" + port)
                        .setTimeout(REPLY_TIMEOUT_MS)
                        .setConnectTimeout(REPLY_TIMEOUT_MS)
                        .setRetryAttempts(0)
                        .setRetryDelay(RETRY_DELAY)
                        .setReconnectionDelay(RETRY_DELAY)
                        .setConnectionMinimumIdleSize(2)
                        .setConnectionPoolSize(16);
                return Redisson.create(config);
            } catch (RedisException notReady) {
                sleep(RETRY_DELAY_MS);
            }
        }
    }

    private void run() {
        try {
            waitUntilReady();
            while (!ended) {
                if (ownEpoch != epoch) {
                    ownEpoch = epoch;
                    write("epoch " + name + " " + ownEpoch);
                }
                rounds++;
                // Redisson's owners are threads. Each attempt is an owner of its own.
                Thread round = new Thread(this::roundOrProblem);
                round.start();
                round.join();
            }
        } catch (RuntimeException | InterruptedException problem) {
            write("problem " + name + ": " + problem);
        }
    }

    private void roundOrProblem() {
        try {
            round();
        } catch (RuntimeException | InterruptedException problem) {
            write("problem " + name + ": " + problem);
            ended = true;
        }
    }

    private void round() throws InterruptedException {
        boolean watchdog = random.nextInt(3) == 0;
        int leaseMs = watchdog ? mostLeaseMs : between(leastLeaseMs, mostLeaseMs);
        String kind = watchdog ? "watchdog" : "lease";
        lock = server.getLock(kind + "-" + ownEpoch + "-" + random.nextInt(LOCKS));
        owner = name + "." + rounds;
        int waitMs = random.nextBoolean() ? 0 : random.nextInt(100);
        if (!"granted".equals(acquire(waitMs, leaseMs, watchdog))) {
            sleep(random.nextInt(10));
            return;
        }
        int holds = 1;
        if (!watchdog && random.nextInt(8) == 0) {
            if (!"granted".equals(acquire(0, leaseMs, false))) {
                return;
            }
            holds = 2;
        }
        if (!hold(leaseMs)) {
            return;
        }
        for (; holds > 0; holds--) {
            // A holder that goes on starts its lease anew.
            String action = holds > 1 ? "release " + leaseMs + "ms" : "release";
            String released = holds > 1 ? "kept" : "released";
            String answer = ask(action, () -> {
                lock.unlock();
                return released;
            });
            if (!released.equals(answer)) {
                return;
            }
        }
    }

    private String acquire(int waitMs, int leaseMs, boolean watchdog) {
        return ask("acquire " + leaseMs + "ms", () -> {
            long beganNs = System.nanoTime();
            boolean granted = watchdog
                    ? lock.tryLock(waitMs, TimeUnit.MILLISECONDS)
                    : lock.tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
            long elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beganNs);
            if (!granted && elapsedMs >= REPLY_TIMEOUT_MS) {
                // Redisson also returns false if a later attempt of a waiter gets no reply.
                throw new RedisTimeoutException("perhaps without a reply");
            }
            return granted ? "granted" : "refused";
        });
    }

    /** Holds the lock for a while. Returns whether to release it. */
    private boolean hold(int leaseMs) {
        int[] longestMs = {3, 3, 3, 100, 100, leaseMs};
        int leftMs = random.nextInt(longestMs[random.nextInt(longestMs.length)]);
        while (leftMs > 0 && !ended) {
            int pauseMs = Math.min(leftMs, 1 + random.nextInt(100));
            sleep(pauseMs);
            leftMs -= pauseMs;
            if (random.nextBoolean()) {
                String answer = ask("check", this::check);
                // The server is here again: it must know the holder.
                for (int tries = 0; "unknown".equals(answer) && tries < 3; tries++) {
                    answer = ask("check", this::check);
                }
                if ("not-owner".equals(answer)) {
                    return false;
                }
            }
        }
        return true;
    }

    private String check() {
        return lock.isHeldByCurrentThread() ? "held" : "not-owner";
    }

    private interface Request {
        String send() throws InterruptedException;
    }

    /** Writes an event. Returns the answer. Returns only when the server answers requests. */
    private String ask(String action, Request request) {
        String answer;
        String late = "";
        long invokedUs = System.nanoTime() / 1000;
        try {
            answer = request.send();
        } catch (IllegalMonitorStateException notHeld) {
            answer = "not-owner";
        } catch (RedisException | InterruptedException lost) {
            answer = "unknown";
            late = "late ";
        }
        long returnedUs = -Math.floorDiv(-System.nanoTime(), 1000L);
        String times = invokedUs + ".." + returnedUs;
        write(late + String.join(" ", times, lock.getName(), owner, action, answer));
        if (answer.equals("unknown")) {
            waitUntilReady();
        }
        return answer;
    }

    private void waitUntilReady() {
        while (!ended) {
            try {
                server.getBucket("ready").isExists();
                return;
            } catch (RedisException notReady) {
                sleep(RETRY_DELAY_MS);
            }
        }
    }

    private int between(int least, int most) {
        return least + random.nextInt(most - least + 1);
    }

    private static void write(String line) {
        synchronized (OUTPUT) {
            OUTPUT.println(line);
            OUTPUT.flush();
        }
    }

    private static void sleep(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException unexpected) {
            Thread.currentThread().interrupt();
        }
    }
}
