// Runs rounds, and writes what was asked and answered.

package lockwheel.kills;

import java.util.Random;

/** A thread that takes locks. Each round is an owner of its own. */
abstract class Worker {
    static final int LOCKS = 5;
    static final int RETRY_DELAY_MS = 5;

    final Settings settings;
    final String name;
    final Random random;
    int ownEpoch = -1;
    private int rounds;
    private String owner;

    Worker(Settings settings, int number) {
        this.settings = settings;
        this.name = settings.library() + "-" + number;
        this.random = new Random(settings.seed() * 1000L + number);
    }

    /** Takes a lock, and releases it. */
    abstract void round() throws InterruptedException;

    /** Throws an exception of which {@link #isLost} is true if no server is ready. */
    abstract void ping() throws InterruptedException;

    /** Whether the answer was lost, so that the request may have had an effect or not. */
    abstract boolean isLost(Exception problem);

    /** Whether the server refused a request, which has no effect. */
    abstract boolean isRefused(Exception problem);

    final void run() {
        try {
            waitUntilReady();
            while (!Clients.ended) {
                if (ownEpoch != Clients.epoch) {
                    ownEpoch = Clients.epoch;
                    Clients.write("epoch " + name + " " + ownEpoch);
                }
                owner = name + "." + ++rounds;
                // The owners of Redisson are threads.
                Thread round = new Thread(this::roundOrProblem);
                round.start();
                round.join();
            }
        } catch (RuntimeException | InterruptedException problem) {
            writeProblem(problem);
        }
    }

    private void roundOrProblem() {
        try {
            round();
        } catch (RuntimeException | InterruptedException problem) {
            writeProblem(problem);
        }
    }

    private void writeProblem(Exception problem) {
        Clients.write(("problem " + name + ": " + problem).replace('\n', ' '));
        Clients.ended = true;
    }

    interface Request {
        String send() throws InterruptedException;
    }

    /** Whether a round with a lock ends here. */
    static boolean isNot(String expected, String answer) {
        return !expected.equals(answer);
    }

    /**
     * Writes an event. Returns the answer, or `unknown`, or `refused` if the server refuses any
     * request. Returns only when the server answers requests.
     */
    final String ask(String lock, String action, Request request) {
        String answer;
        String late = "";
        long invokedUs = System.nanoTime() / 1000;
        try {
            answer = request.send();
        } catch (RuntimeException | InterruptedException problem) {
            if (isRefused(problem)) {
                waitUntilReady();
                return "refused";
            }
            if (problem instanceof RuntimeException other && !isLost(problem)) {
                throw other;
            }
            answer = "unknown";
            late = "late ";
        }
        long returnedUs = -Math.floorDiv(-System.nanoTime(), 1000L);
        String times = invokedUs + ".." + returnedUs;
        Clients.write(late + String.join(" ", times, lock, owner, action, answer));
        if (answer.equals("unknown")) {
            waitUntilReady();
        }
        return answer;
    }

    private void waitUntilReady() {
        while (!Clients.ended) {
            Clients.sleep(RETRY_DELAY_MS);
            try {
                ping();
                return;
            } catch (RuntimeException | InterruptedException problem) {
                if (problem instanceof RuntimeException other
                        && !isLost(problem)
                        && !isRefused(problem)) {
                    throw other;
                }
            }
        }
    }

    interface Check {
        /** The answer to a request that keeps the lock, or only looks for it. */
        String send();
    }

    /** Holds the lock for a while. Returns whether to release it. */
    final boolean hold(int leaseMs, Check keep, Check check) {
        int[] longestMs = {3, 3, 3, 100, 100, leaseMs};
        int leftMs = random.nextInt(longestMs[random.nextInt(longestMs.length)]);
        while (leftMs > 0 && !Clients.ended) {
            int pauseMs = Math.min(leftMs, 1 + random.nextInt(100));
            Clients.sleep(pauseMs);
            leftMs -= pauseMs;
            if (random.nextBoolean()) {
                String answer = keep.send();
                // The server is here again: it must know the holder.
                for (int tries = 0; "unknown".equals(answer) && tries < 3; tries++) {
                    answer = check.send();
                }
                if ("not-owner".equals(answer)) {
                    return false;
                }
            }
        }
        return true;
    }

    final int between(int least, int most) {
        return least + random.nextInt(most - least + 1);
    }
}
