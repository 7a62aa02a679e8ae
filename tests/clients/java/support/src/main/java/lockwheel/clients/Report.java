// Appends one line to SUITE_REPORT for each test method, and prints it.

package lockwheel.clients;

import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

import java.io.IOException;
import java.lang.annotation.Annotation;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Optional;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.TestWatcher;
import org.junit.platform.commons.support.AnnotationSupport;

final class Report implements BeforeEachCallback, TestWatcher {
    private static final Namespace TIMES = Namespace.create(Report.class);
    private static final int REASON_LENGTH = 300;

    @Override
    public void beforeEach(ExtensionContext test) {
        test.getStore(TIMES).put("start", System.nanoTime());
    }

    @Override
    public void testSuccessful(ExtensionContext test) {
        record(test, "passed", "");
    }

    @Override
    public void testFailed(ExtensionContext test, Throwable cause) {
        record(test, "failed", cause.toString());
    }

    @Override
    public void testAborted(ExtensionContext test, Throwable cause) {
        record(test, "skipped", cause.getMessage());
    }

    @Override
    public void testDisabled(ExtensionContext test, Optional<String> reason) {
        record(test, "skipped", reason.orElse("disabled"));
    }

    private static void record(ExtensionContext test, String outcome, String reason) {
        var library = annotation(test, Library.class).orElseThrow();
        var version = Library.Version.of(library.type());
        var setting = annotation(test, Library.Setting.class);
        var behaviour = test.getDisplayName()
                + setting.map(words -> " (" + words.value() + ")").orElse("");
        var why = reason.lines().findFirst().orElse("");
        why = why.substring(0, Math.min(why.length(), REASON_LENGTH));

        var fields = new StringBuilder("{");
        field(fields, "library", library.name()).append(',');
        field(fields, "version", version).append(',');
        field(fields, "behaviour", behaviour).append(',');
        field(fields, "outcome", outcome);
        if (!outcome.equals("passed")) {
            field(fields.append(','), "reason", why);
        }
        append(fields.append("}\n").toString());

        System.out.printf(Locale.ROOT, "%-7s %5.1f s  %s %s: %s%s%n",
                outcome, seconds(test), library.name(), version, behaviour,
                why.isEmpty() ? "" : " -- " + why);
    }

    private static <A extends Annotation> Optional<A> annotation(
            ExtensionContext test, Class<A> type) {
        return AnnotationSupport.findAnnotation(test.getRequiredTestClass(), type);
    }

    private static double seconds(ExtensionContext test) {
        var start = test.getStore(TIMES).get("start", Long.class);
        return start == null ? 0 : (System.nanoTime() - start) / 1e9;
    }

    private static StringBuilder field(StringBuilder line, String name, String value) {
        return quote(quote(line, name).append(':'), value);
    }

    private static StringBuilder quote(StringBuilder line, String text) {
        line.append('"');
        for (var letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                line.append('\\').append(letter);
            } else if (letter < ' ') {
                line.append(String.format(Locale.ROOT, "\\u%04x", (int) letter));
            } else {
                line.append(letter);
            }
        }
        return line.append('"');
    }

    /** Several tests end at once, and several libraries append to one file. */
    private static synchronized void append(String line) {
        var path = System.getenv("SUITE_REPORT");
        if (path == null || path.isBlank()) {
            return;
        }
        try {
            Files.writeString(Path.of(path), line, CREATE, APPEND);
        } catch (IOException error) {
            throw new IllegalStateException("cannot write " + path, error);
        }
    }
}
