package io.github.leasehold.junit5;

import io.github.leasehold.Check;
import io.github.leasehold.Journal.Entry;
import io.github.leasehold.LeaseholdException;
import io.github.leasehold.LeaseholdServer;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The servers of a test, or of the tests of a class. */
final class Servers {
    private static final int TOLD_ENTRIES = 30;
    private static final Pattern QUESTION = Pattern.compile(
            "\\[LEASEHOLD, (CLOCK\\]|\\w+, LIST\\]|(JOURNAL|LOCKS|LINT|CHECK)\\b).*");

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
            super("the journal of " + server.url() + lines(server), null, false, false);
        }

        private static String lines(LeaseholdServer server) {
            try {
                var told = server.journal().entries().stream().filter(entry -> !asks(entry))
                        .collect(Collectors.toList());
                return Entry.lines(
                        told.subList(Math.max(0, told.size() - TOLD_ENTRIES), told.size()));
            } catch (LeaseholdException error) {
                return " cannot be read: " + error.getMessage();
            }
        }

        /** Whether it is no more than a question, which a test that waits asks often. */
        private static boolean asks(Entry entry) {
            Object argv = entry.fields().get("argv");
            return argv != null && QUESTION.matcher(argv.toString()).matches();
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }
}
