// Recognizes requests that a server refuses.

package lockwheel.kills;

import java.util.List;

/** Errors by which a server that does not lead refuses any request. */
final class Refusals {
    private static final List<String> CODES = List.of("LOADING ", "MASTERDOWN ", "READONLY ");

    private Refusals() {}

    static boolean isOne(String error) {
        return CODES.stream().anyMatch(error::startsWith);
    }
}
