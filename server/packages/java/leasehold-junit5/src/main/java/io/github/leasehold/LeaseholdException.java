package io.github.leasehold;

/** A server could not be started or reached, or has answered with an error: the message tells. */
public final class LeaseholdException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LeaseholdException(String message) {
        super(message);
    }

    LeaseholdException(String message, Throwable cause) {
        super(message, cause);
    }
}
