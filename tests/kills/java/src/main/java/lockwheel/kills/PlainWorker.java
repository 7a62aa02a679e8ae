// Takes locks by a recipe.

package lockwheel.kills;

/** A thread that takes locks by the recipe of `SET NX PX` and of scripts that compare the owner. */
final class PlainWorker extends Worker {
    private static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end"
                    + " return 0";
    private static final String RENEW =
            "if redis.call('get', KEYS[1]) == ARGV[1] then"
                    + " return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

    /** A connection by one of the libraries. */
    interface Server {
        /** Sets a missing key. Returns whether it was missing. */
        boolean setNew(String key, String value, int leaseMs);

        /** The answer of a script, which is a number. */
        long eval(String script, String key, String... arguments);

        String get(String key);

        void ping();

        boolean isLost(Exception problem);

        boolean isRefused(Exception problem);
    }

    private final Server server;
    private int tokens;

    PlainWorker(Settings settings, int number, Server server) {
        super(settings, number);
        this.server = server;
    }

    @Override
    void round() {
        int leaseMs = between(settings.leastLeaseMs(), settings.mostLeaseMs());
        String lock = "plain-" + ownEpoch + "-" + random.nextInt(LOCKS);
        String token = name + "." + ++tokens;
        String taken = ask(lock, "acquire " + leaseMs + "ms", () ->
                server.setNew(lock, token, leaseMs) ? "granted" : "refused");
        if (isNot("granted", taken)) {
            Clients.sleep(random.nextInt(10));
            return;
        }
        String lease = Integer.toString(leaseMs);
        Check renew = () -> ask(lock, "renew " + lease + "ms", () ->
                server.eval(RENEW, lock, token, lease) == 1 ? "granted" : "not-owner");
        Check check = () -> ask(lock, "check", () ->
                token.equals(server.get(lock)) ? "held" : "not-owner");
        if (hold(leaseMs, random.nextBoolean() ? renew : check, check)) {
            ask(lock, "release", () ->
                    server.eval(RELEASE, lock, token) == 1 ? "released" : "not-owner");
        }
    }

    @Override
    void ping() {
        server.ping();
    }

    @Override
    boolean isLost(Exception problem) {
        return server.isLost(problem);
    }

    @Override
    boolean isRefused(Exception problem) {
        return server.isRefused(problem);
    }
}
