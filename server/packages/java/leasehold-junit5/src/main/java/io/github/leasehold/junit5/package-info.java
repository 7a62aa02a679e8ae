/** Servers for the tests of JUnit. */
package io.github.leasehold.junit5;
