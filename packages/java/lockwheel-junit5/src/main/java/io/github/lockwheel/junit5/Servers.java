// Starts, resets and stops the servers of a test or a class.

package io.github.lockwheel.junit5;

import io.github.lockwheel.Check;
import io.github.lockwheel.CheckError;
import io.github.lockwheel.LockwheelException;
import io.github.lockwheel.LockwheelServer;
import java.util.ArrayList;
import java.util.List;

/** The servers of a test or of a class. */
final class Servers {
    private static final int STORY_ENTRIES = 30;

    private final Lockwheel settings;
    private final List<LockwheelServer> servers = new ArrayList<>();

    Servers(Lockwheel settings) {
        this.settings = settings;
    }

    /** The server with this number, started if necessary. */
    synchronized LockwheelServer get(int number) {
        while (servers.size() <= number) {
            servers.add(LockwheelServer.builder()
                    .frozen(settings.frozen())
                    .lockKeys(settings.lockKeys())
                    .ignoredLockKeys(settings.ignoredLockKeys())
                    .options(settings.options())
                    .start());
        }
        return servers.get(number);
    }

    synchronized void reset() {
        servers.forEach(LockwheelServer::reset);
    }

    synchronized void check(Check... checks) {
        try {
            for (LockwheelServer server : servers) {
                for (Check check : checks) {
                    server.journal().check(check);
                }
            }
        } catch (CheckError failure) {
            addStories(failure);
            throw failure;
        }
    }

    /** Adds the journals of the servers to a failure. That of a check has its story already. */
    synchronized void addStories(Throwable failure) {
        LockwheelServer shown =
                failure instanceof CheckError ? ((CheckError) failure).server() : null;
        for (LockwheelServer server : servers) {
            if (server != shown) {
                failure.addSuppressed(new Story(server));
            }
        }
    }

    synchronized void stop() {
        servers.forEach(LockwheelServer::stop);
    }

    /** The journal of a server, shown with a failure. */
    private static final class Story extends Exception {
        private static final long serialVersionUID = 1;

        Story(LockwheelServer server) {
            super("the journal of " + server.url() + story(server), null, false, false);
        }

        private static String story(LockwheelServer server) {
            try {
                return "\n" + server.journal().story(STORY_ENTRIES);
            } catch (LockwheelException error) {
                return " cannot be read: " + error.getMessage();
            }
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }
}
