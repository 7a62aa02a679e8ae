// Tests that the README's code is code of these tests. `run` tests its commands and XML.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class ReadmeTest {
    private static final Pattern BLOCK =
            Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    @Test
    void theCodeOfTheReadmeRuns() throws IOException {
        var page = Files.readString(Path.of(System.getProperty("readme")));
        var blocks = BLOCK.matcher(page).results()
                .map(block -> unindented(block.group(1))).toList();
        var running = sources();
        assertEquals(11, blocks.size());
        assertEquals(List.of(), blocks.stream().filter(block -> !running.contains(block)).toList());
    }

    /** All sources of these projects. */
    private static String sources() throws IOException {
        try (Stream<Path> files = Files.walk(Path.of(".."))) {
            return files.filter(file -> file.toString().matches(".*(\\.java|pom\\.xml)"))
                    .map(ReadmeTest::text).map(ReadmeTest::unindented)
                    .collect(Collectors.joining());
        }
    }

    private static String text(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String unindented(String text) {
        return text.lines().map(String::strip).collect(Collectors.joining("\n", "", "\n"));
    }
}
