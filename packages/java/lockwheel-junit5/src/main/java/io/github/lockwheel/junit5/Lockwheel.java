// Public API: the annotation that gives tests a server.

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
 * Resolves parameters of the type {@link io.github.lockwheel.LockwheelServer} of a test, its
 * {@code @BeforeEach} and its {@code @AfterEach}. The first such parameter is the same server in all
 * of these methods, the second is another server, and so on. A server starts when its parameter is
 * first resolved, and stops with the test.
 *
 * <p>A failed test shows the last entries of its servers' journals. A failed check shows the
 * entries of its lock instead of the journal of its server.
 */
@Documented
@Inherited
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(LockwheelExtension.class)
public @interface Lockwheel {
    /**
     * Whether the server starts with a stopped clock.
     *
     * @return whether it is stopped
     */
    boolean frozen() default false;

    /**
     * Patterns of keys that are locks, however they are made.
     *
     * @return the patterns, such as {@code "job:*"}
     */
    String[] lockKeys() default {};

    /**
     * Patterns of keys that are no locks.
     *
     * @return the patterns, such as {@code "idem:*"}
     */
    String[] ignoredLockKeys() default {};

    /**
     * Options of redis-server.
     *
     * @return as on the command line, such as {@code {"--requirepass", "secret"}}
     */
    String[] options() default {};

    /**
     * Checks that run when a test has passed. A failed check fails the test.
     *
     * @return the checks
     */
    Check[] check() default {};

    /**
     * Whether all tests of the class use the same servers, which are reset before each test: see
     * {@link io.github.lockwheel.LockwheelServer#reset}. Such tests must not run in parallel. Only
     * shared servers can be parameters of {@code @BeforeAll} and of a constructor.
     *
     * @return whether they are shared
     */
    boolean shared() default false;
}
