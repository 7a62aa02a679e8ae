// Names the library of a test class in the report, which has a line for each of its methods.

package lockwheel.clients;

import java.io.IOException;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.Properties;
import java.util.jar.JarFile;
import org.junit.jupiter.api.extension.ExtendWith;

@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@ExtendWith(Report.class)
public @interface Library {
    String name();

    /** Any class out of the library's jar: the jar has the version. */
    Class<?> type();

    /** Set apart by words after the behaviour's name, where one test runs in several settings. */
    @Target(ElementType.TYPE)
    @Retention(RetentionPolicy.RUNTIME)
    @Inherited
    @interface Setting {
        String value();
    }

    /** Reads versions out of jars: from Maven's own record, or else from the manifest. */
    final class Version {
        private static final String RECORD = "META-INF/maven/[^/]+/[^/]+/pom.properties";

        private Version() {}

        static String of(Class<?> type) {
            var place = type.getProtectionDomain().getCodeSource().getLocation().getPath();
            try (var jar = new JarFile(place)) {
                var record = jar.stream()
                        .filter(entry -> entry.getName().matches(RECORD))
                        .filter(entry -> place.contains("/" + artifact(entry.getName()) + "/"))
                        .findFirst();
                if (record.isPresent()) {
                    var properties = new Properties();
                    properties.load(jar.getInputStream(record.get()));
                    return properties.getProperty("version");
                }
                return jar.getManifest().getMainAttributes().getValue("Implementation-Version");
            } catch (IOException error) {
                throw new IllegalStateException("no version in " + place, error);
            }
        }

        private static String artifact(String entry) {
            return entry.split("/")[3];
        }
    }
}
