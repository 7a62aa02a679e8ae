// Checks mutual exclusion while many workers contend for one lock.

package lockwheel.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.Lock;
import java.util.function.IntFunction;

public final class Contention {
    private Contention() {}

    /** How a worker enters and leaves the section. */
    public interface Guard {
        void enter() throws Exception;

        void leave() throws Exception;

        /** Waits as the lock itself does. */
        static Guard of(Lock lock) {
            return of(lock::lock, lock::unlock);
        }

        static Guard of(Actor.Task enter, Actor.Task leave) {
            return new Guard() {
                @Override
                public void enter() throws Exception {
                    enter.run();
                }

                @Override
                public void leave() throws Exception {
                    leave.run();
                }
            };
        }

        /** Tries repeatedly, after random pauses that separate the contenders. */
        static Guard retrying(Lock lock) {
            return of(
                    () -> {
                        while (!lock.tryLock()) {
                            Thread.sleep(ThreadLocalRandom.current().nextInt(2, 20));
                        }
                    },
                    lock::unlock);
        }
    }

    /** Mutual exclusion: each worker, on its own thread, enters `rounds` times. */
    public static void exclusive(int workers, int rounds, IntFunction<Guard> guards)
            throws Exception {
        var section = new GuardedSection(1);
        runGuarded(section, workers, rounds, guards);
        assertEquals(workers * rounds, section.runs(), "runs of the section");
    }

    /** A bound: up to the section's limit are inside at once. */
    public static void runGuarded(GuardedSection section, int workers, int rounds, IntFunction<Guard> guards)
            throws Exception {
        var actors = new ArrayList<Actor>();
        var ends = new ArrayList<Actor.Result<Void>>();
        for (var worker = 0; worker < workers; worker++) {
            var guard = guards.apply(worker);
            var actor = new Actor();
            actors.add(actor);
            ends.add(actor.begin(() -> {
                for (var round = 0; round < rounds; round++) {
                    guard.enter();
                    try {
                        section.run();
                    } finally {
                        guard.leave();
                    }
                }
                return null;
            }));
        }
        for (var end : ends) {
            end.get();
        }
        actors.forEach(Actor::close);
    }
}
