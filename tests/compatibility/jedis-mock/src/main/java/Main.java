import com.github.fppt.jedismock.RedisServer;

/** Listens on the port it is given until it is ended. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        RedisServer.newRedisServer(Integer.parseInt(arguments[0])).start();
        Thread.currentThread().join();
    }
}
