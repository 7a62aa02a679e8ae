// Checks that a lock excludes other holders, and that a lease ends on time.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

export { sleep };

export const WORKERS = 8;
export const ROUNDS = 5;

// The limit of every wait: long enough for slow machines, so that only a lost wake-up exceeds it.
export const MAX_WAIT_MS = 30_000;

// The time before the end of a lease in which it is polled without pauses.
const NEAR_MS = 30;

// The time for which a worker holds the lock. A second holder in that time reads the old count.
const INSIDE_MS = 2;

/** A counter that is read and later written: two holders at the same time lose counts. */
export class Section {
  count = 0;

  async visit() {
    const seen = this.count;
    await sleep(INSIDE_MS);
    this.count = seen + 1;
  }
}

/** Runs `work(section, number)` in concurrent workers. Returns their section. */
export async function contend(work, workers = WORKERS) {
  const section = new Section();
  await Promise.all(Array.from({ length: workers }, (_, number) => work(section, number)));
  return section;
}

/**
 * Tries until granted, without pauses near the end of the lease. `since` is the time before the
 * lease began: fails if the lock is granted earlier than a lease after it.
 */
export async function leaseEnds(attempt, since, lease) {
  while (!(await attempt())) {
    const passed = performance.now() - since;
    assert.ok(passed < MAX_WAIT_MS, "not granted after the lease");
    if (passed < lease - NEAR_MS) await sleep(Math.min(NEAR_MS, lease - NEAR_MS - passed));
  }
  const passed = performance.now() - since;
  assert.ok(passed >= lease, `granted ${passed} ms after the beginning of a lease of ${lease}`);
}

/**
 * Acquires a lease with `take()`, and calls `follow(since)`, which must happen within it. Returns
 * `since`, the time before that call. If the machine stalled for the length of the lease, both are
 * repeated.
 */
export async function withinLease(lease, take, follow) {
  for (;;) {
    const begin = performance.now();
    assert.ok(await take(), "not granted");
    const since = performance.now();
    const followed = await follow(since);
    if (followed) return since;
    assert.ok(performance.now() - begin >= lease, "refused within the lease");
  }
}

/**
 * Returns true if the lock was refused to another client for longer than a lease while its holder
 * renews it. If the machine stalls for too long to renew it in time, the lock is lost, the signal
 * is aborted when the next renewal fails, and the result is false.
 */
export async function staysHeld(signal, attempt, lease) {
  const since = performance.now();
  while (performance.now() - since < lease * 1.25) {
    // The signal of a lock that was granted twice is never aborted.
    if (await attempt()) await eventually(() => signal.aborted);
    if (signal.aborted) return false;
    await sleep(20);
  }
  return true;
}

/** The result of `using`, or false if the lock was not acquired or not renewed in time. */
export async function used(using) {
  try {
    return await using();
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    return false;
  }
}

/** Waits until `condition()` holds, and gives what it gave. */
export async function eventually(condition) {
  const since = performance.now();
  for (;;) {
    const held = await condition();
    if (held) return held;
    assert.ok(performance.now() - since < MAX_WAIT_MS, "did not come about");
    await sleep(10);
  }
}

/** Whether `promise` is still open after a while in which nothing should settle it. */
export async function stillWaits(promise) {
  return (await Promise.race([promise.then(() => "settled"), sleep(200)])) !== "settled";
}
