/** A lock server for tests that speaks the Redis protocol. */
package io.github.lockwheel;
