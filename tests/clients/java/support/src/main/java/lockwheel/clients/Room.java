// The section that a lock protects: counts the workers inside, and fails if there are too many.

package lockwheel.clients;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicInteger;

public final class Room {
    private final int limit;
    private final AtomicInteger inside = new AtomicInteger();
    /** Deliberately read and written separately: concurrent visits lose updates. */
    private volatile int visits;

    public Room(int limit) {
        this.limit = limit;
    }

    /** Goes in, stays for a moment, goes out again. */
    public void visit() throws InterruptedException {
        var count = inside.incrementAndGet();
        assertTrue(count <= limit, () -> count + " inside at once, where " + limit + " may be");
        var before = visits;
        Thread.sleep(1);
        visits = before + 1;
        inside.decrementAndGet();
    }

    /** Visits counted; with one visitor at a time none is lost. */
    public int visits() {
        return visits;
    }
}
