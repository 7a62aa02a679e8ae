/** A Redis lock server for tests, started, moved, broken and asked from Java. */
package io.github.lockwheel;
