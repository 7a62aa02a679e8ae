// The JUnit extension that resolves parameters and checks locks after each test.

package io.github.lockwheel.junit5;

import io.github.lockwheel.LockwheelServer;
import java.util.Arrays;
import java.util.Optional;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.platform.commons.support.AnnotationSupport;

/** The JUnit extension of {@link Lockwheel}. */
public final class LockwheelExtension
        implements ParameterResolver, BeforeEachCallback, AfterEachCallback, AfterAllCallback {
    private static final Namespace NAMESPACE = Namespace.create(LockwheelExtension.class);

    /** Called by JUnit. */
    public LockwheelExtension() {}

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == LockwheelServer.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Scope scope = Scope.of(context);
        if (scope.owner.getTestMethod().isEmpty() && !scope.settings.shared()) {
            throw new ParameterResolutionException(
                    "each test has its own server, as a parameter of the test or of @BeforeEach;"
                    + " with @Lockwheel(shared = true) all tests of the class share one");
        }
        var before = Arrays.asList(parameter.getDeclaringExecutable().getParameterTypes())
                .subList(0, parameter.getIndex());
        long number = before.stream().filter(type -> type == LockwheelServer.class).count();
        return scope.servers().get((int) number);
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        Scope scope = Scope.of(context);
        if (scope.settings.shared()) {
            scope.startedServers().ifPresent(Servers::reset);
        }
    }

    @Override
    public void afterEach(ExtensionContext context) {
        Scope scope = Scope.of(context);
        Optional<Servers> servers = scope.startedServers();
        try {
            Optional<Throwable> failure = context.getExecutionException();
            if (failure.isPresent()) {
                servers.ifPresent(those -> those.addStories(failure.get()));
            } else {
                servers.ifPresent(those -> those.check(scope.settings.check()));
            }
        } finally {
            if (scope.owner == context) {
                servers.ifPresent(Servers::stop);
            }
        }
    }

    @Override
    public void afterAll(ExtensionContext context) {
        Scope.stored(context).ifPresent(Servers::stop);
    }

    /** An annotation, and the context that its servers live as long as. */
    private static final class Scope {
        final Lockwheel settings;
        final ExtensionContext owner;

        private Scope(Lockwheel settings, ExtensionContext owner) {
            this.settings = settings;
            this.owner = owner;
        }

        /** The scope of the nearest annotation: of the method, the class, or an enclosing class. */
        static Scope of(ExtensionContext context) {
            Optional<ExtensionContext> at = Optional.of(context);
            while (at.isPresent()) {
                Optional<Lockwheel> found =
                        AnnotationSupport.findAnnotation(at.get().getElement(), Lockwheel.class);
                if (found.isPresent()) {
                    return new Scope(found.get(), found.get().shared() ? at.get() : context);
                }
                at = at.get().getParent();
            }
            return new Scope(Defaults.class.getAnnotation(Lockwheel.class), context);
        }

        Servers servers() {
            return owner.getStore(NAMESPACE).getOrComputeIfAbsent(
                    owner.getUniqueId(), key -> new Servers(settings), Servers.class);
        }

        Optional<Servers> startedServers() {
            return stored(owner);
        }

        static Optional<Servers> stored(ExtensionContext owner) {
            return Optional.ofNullable(
                    owner.getStore(NAMESPACE).get(owner.getUniqueId(), Servers.class));
        }

        @Lockwheel
        private static final class Defaults {}
    }
}
