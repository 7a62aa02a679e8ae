package io.github.leasehold.junit5;

import io.github.leasehold.Check;
import io.github.leasehold.LeaseholdException;
import io.github.leasehold.LeaseholdServer;
import java.util.ArrayList;
import java.util.List;

/** The servers of a test, or of the tests of a class. */
final class Servers {
    private static final int TOLD_ENTRIES = 30;

    private final Leasehold settings;
    private final List<LeaseholdServer> servers = new ArrayList<>();

    Servers(Leasehold settings) {
        this.settings = settings;
    }

    /** The one of this number. It is started if it is not there. */
    synchronized LeaseholdServer get(int number) {
        while (servers.size() <= number) {
            servers.add(LeaseholdServer.builder()
                    .frozen(settings.frozen()).options(settings.options()).start());
        }
        return servers.get(number);
    }

    synchronized void reset() {
        servers.forEach(LeaseholdServer::reset);
    }

    synchronized void check(Check... checks) {
        for (LeaseholdServer server : servers) {
            for (Check check : checks) {
                server.journal().check(check);
            }
        }
    }

    /** Has a failure tell what has happened on each. */
    synchronized void tell(Throwable failure) {
        for (LeaseholdServer server : servers) {
            failure.addSuppressed(new Story(server));
        }
    }

    synchronized void stop() {
        servers.forEach(LeaseholdServer::stop);
    }

    /** What a failure shows beside its own message. */
    private static final class Story extends Exception {
        private static final long serialVersionUID = 1;

        Story(LeaseholdServer server) {
            super("the journal of " + server.url() + told(server), null, false, false);
        }

        private static String told(LeaseholdServer server) {
            try {
                return "\n" + server.journal().story(TOLD_ENTRIES);
            } catch (LeaseholdException error) {
                return " cannot be read: " + error.getMessage();
            }
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }
}
