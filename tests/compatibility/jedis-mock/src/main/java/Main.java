// Runs jedis-mock on the given port until the process is ended.

import com.github.fppt.jedismock.RedisServer;

public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        RedisServer.newRedisServer(Integer.parseInt(arguments[0])).start();
        Thread.currentThread().join();
    }
}
