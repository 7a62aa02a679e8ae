/** Servers as parameters of JUnit tests. */
package io.github.lockwheel.junit5;
