// Takes and releases locks with the libraries of Java until its input ends: see ../README.md.

package lockwheel.kills;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/** The program. */
public final class Clients {
    private static final PrintStream OUTPUT =
            new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    static volatile int epoch;
    static volatile boolean ended;

    private Clients() {}

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Settings settings = Settings.of(arguments);
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        epoch = Integer.parseInt(input.readLine());
        IntFunction<Worker> workers = workers(settings);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < settings.threads(); number++) {
            Thread thread = new Thread(workers.apply(number)::run);
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
        // The libraries are not closed, which takes time: nothing is left to do.
        Runtime.getRuntime().halt(0);
    }

    private static IntFunction<Worker> workers(Settings settings) {
        switch (settings.library()) {
            case "jedis":
                JedisServer jedis = JedisServer.connect(settings);
                return number -> new PlainWorker(settings, number, jedis);
            case "lettuce":
                LettuceServer lettuce = LettuceServer.connect(settings);
                return number -> new PlainWorker(settings, number, lettuce);
            case "redisson-retries":
                var retrying = RedissonWorker.connect(settings, false);
                return number -> new RetryingWorker(settings, number, retrying);
            default:
                var redisson = RedissonWorker.connect(settings, true);
                return number -> new RedissonWorker(settings, number, redisson);
        }
    }

    static void write(String line) {
        synchronized (OUTPUT) {
            OUTPUT.println(line);
            OUTPUT.flush();
        }
    }

    static void sleep(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException unexpected) {
            Thread.currentThread().interrupt();
        }
    }
}
