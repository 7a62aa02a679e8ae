// The commands of the lock recipes, as each library implements them.

package lockwheel.clients.recipes;

public interface Commands extends AutoCloseable {
    /** `SETNX` */
    boolean setIfAbsent(String key, String value);

    /** `SET NX PX` */
    boolean setIfAbsent(String key, String value, long leaseMs);

    /** `GET` */
    String get(String key);

    /** `SET` */
    void set(String key, String value);

    /** `GETSET` */
    String getAndSet(String key, String value);

    /** `DEL`; returns whether there was something. */
    boolean delete(String key);

    /** `PEXPIRE`; returns whether there was something. */
    boolean expire(String key, long leaseMs);

    /** `PTTL` */
    long remainingMs(String key);

    /** `EVAL` or `EVALSHA`, of a script that returns an integer. */
    long eval(String script, String key, String... arguments);

    /**
     * `WATCH`, `GET`, and where the value is the expected one `MULTI`, `DEL`, `EXEC`, with
     * `meanwhile` in between; returns whether the transaction was carried out.
     */
    boolean deleteWatched(String key, String expected, Runnable meanwhile) throws Exception;

    @Override
    void close();
}
