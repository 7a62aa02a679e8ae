package io.github.lockwheel.junit5;

import io.github.lockwheel.Check;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Gives the tests of a class, or one test, servers of their own, as parameters of the type
 * {@link io.github.lockwheel.LockwheelServer}: of the test, and of its {@code @BeforeEach} and
 * {@code @AfterEach}. The first such parameter is the same server everywhere in a test, the second
 * another one, and so on. Each is started when it is first asked for, and ends with the test.
 *
 * <p>A test that fails shows the last entries of its servers' journals.
 */
@Documented
@Inherited
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(LockwheelExtension.class)
public @interface Lockwheel {
    /**
     * Whether the clock stands still from the beginning.
     *
     * @return whether it does
     */
    boolean frozen() default false;

    /**
     * Options of redis-server.
     *
     * @return as on the command line, such as {@code {"--requirepass", "secret"}}
     */
    String[] options() default {};

    /**
     * What must hold when a test has passed. If it does not, it has failed.
     *
     * @return the checks
     */
    Check[] check() default {};

    /**
     * Whether all tests of the class have the same servers, which are reset before each: see
     * {@link io.github.lockwheel.LockwheelServer#reset}. Such tests must not run in parallel. Only
     * then may {@code @BeforeAll} and a constructor have them, too.
     *
     * @return whether they have
     */
    boolean shared() default false;
}
