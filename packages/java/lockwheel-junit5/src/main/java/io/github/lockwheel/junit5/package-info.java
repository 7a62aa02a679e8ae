/** Servers for the tests of JUnit. */
package io.github.lockwheel.junit5;
