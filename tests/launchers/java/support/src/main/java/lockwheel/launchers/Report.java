// Appends one line to SUITE_REPORT for each test method, and prints it.

package lockwheel.launchers;

import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestWatcher;

final class Report implements TestWatcher {
    private static final int REASON_LENGTH = 300;

    @Override
    public void testSuccessful(ExtensionContext test) {
        record(test, "passed", "");
    }

    @Override
    public void testFailed(ExtensionContext test, Throwable cause) {
        cause.printStackTrace();
        record(test, "failed", cause.toString());
    }

    @Override
    public void testAborted(ExtensionContext test, Throwable cause) {
        record(test, "skipped", cause.getMessage());
    }

    private static void record(ExtensionContext test, String outcome, String reason) {
        var contract = (EmbeddedRedisContract) test.getRequiredTestInstance();
        var launcher = "embedded-redis of " + contract.vendor();
        var why = reason.lines().findFirst().orElse("");
        why = why.substring(0, Math.min(why.length(), REASON_LENGTH));
        append("{" + String.join(",",
                field("library", launcher),
                field("version", contract.version()),
                field("behaviour", test.getDisplayName()),
                field("outcome", outcome),
                field("reason", why)) + "}\n");
        System.out.println(outcome + "  " + launcher + ": " + test.getDisplayName() + " " + why);
    }

    private static String field(String name, String value) {
        var quoted = value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\t", " ");
        return "\"" + name + "\":\"" + quoted + "\"";
    }

    private static void append(String line) {
        var path = System.getenv("SUITE_REPORT");
        if (path == null || path.isBlank()) {
            return;
        }
        try {
            Files.writeString(Path.of(path), line, CREATE, APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
