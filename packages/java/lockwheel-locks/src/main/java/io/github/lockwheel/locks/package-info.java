/**
 * Native locks of a Lockwheel server ({@code LOCK.*}), over Lettuce or Jedis.
 *
 * <pre>{@code
 * var locks = new JedisLocks(client);
 * try (var lock = locks.lock("invoice:7", Duration.ofSeconds(30))
 *         .waitFor(Duration.ofSeconds(5)).build().acquire()) {
 *     write(invoice, lock.token());
 * }
 * }</pre>
 *
 * <p>A lock that is held renews itself. Clients that wait for it form a queue, first in first out.
 */
package io.github.lockwheel.locks;
