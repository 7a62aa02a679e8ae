// The section that a lock protects: counts the workers inside, and fails if there are too many.

package lockwheel.clients;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicInteger;

public final class GuardedSection {
    private final int limit;
    private final AtomicInteger inside = new AtomicInteger();
    /** Deliberately read and written separately: concurrent runs lose updates. */
    private volatile int runs;

    public GuardedSection(int limit) {
        this.limit = limit;
    }

    /** Enters the section, stays for a millisecond, and leaves it. */
    public void run() throws InterruptedException {
        var count = inside.incrementAndGet();
        assertTrue(count <= limit, () -> count + " inside at once; the limit is " + limit);
        var before = runs;
        Thread.sleep(1);
        runs = before + 1;
        inside.decrementAndGet();
    }

    /** The number of runs; none is lost if one worker is inside at a time. */
    public int runs() {
        return runs;
    }
}
