// How the tests see that a lock excludes, and when a lease ended.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

export { sleep };

export const WORKERS = 8;
export const ROUNDS = 5;

// A server is never waited for longer: slow machines are no failure, a lost wake-up is one.
export const PATIENCE_MS = 30_000;

// How long before its end a lease is watched without a pause.
const NEAR_MS = 30;

// How long a worker holds the lock. Another that gets it meanwhile reads the old count.
const INSIDE_MS = 2;

/** A counter that is read, left alone and written: two inside at once lose counts. */
export class Section {
  count = 0;

  async visit() {
    const seen = this.count;
    await sleep(INSIDE_MS);
    this.count = seen + 1;
  }
}

/** Runs `work(section, number)` as many workers at once; the section they met in. */
export async function contend(work, workers = WORKERS) {
  const section = new Section();
  await Promise.all(Array.from({ length: workers }, (_, number) => work(section, number)));
  return section;
}

/**
 * Tries until granted, without a pause when the end is near: fails if that is sooner than a lease
 * after `since`, the moment before it began.
 */
export async function leaseEnds(attempt, since, lease) {
  while (!(await attempt())) {
    const passed = performance.now() - since;
    assert.ok(passed < PATIENCE_MS, "not granted after the lease");
    if (passed < lease - NEAR_MS) await sleep(Math.min(NEAR_MS, lease - NEAR_MS - passed));
  }
  const passed = performance.now() - since;
  assert.ok(passed >= lease, `granted ${passed} ms after the beginning of a lease of ${lease}`);
}

/**
 * Takes a lease with `take()`, and does with `follow(since)` at once what must be done within it;
 * `since` is the moment before that, and what is returned. On a machine that stood for as long as
 * the lease the two are tried anew: whatever came of the second, it came too late.
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
 * Whether the lock was refused to another for longer than a lease, while its holder renews it. On a
 * machine that stalls for too long to renew it in time, it is lost, and the signal tells: then there
 * is nothing to be seen.
 */
export async function staysHeld(signal, attempt, lease) {
  const since = performance.now();
  while (performance.now() - since < lease * 1.25) {
    const granted = await attempt();
    await sleep(granted ? lease : 20);
    if (signal.aborted) return false;
    assert.ok(!granted, "granted while another held it");
  }
  return true;
}

/** What `using` gave, or false where the lock was not taken, or not kept, in time. */
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
    assert.ok(performance.now() - since < PATIENCE_MS, "did not come about");
    await sleep(10);
  }
}

/** Whether `promise` is still open after a while in which nothing should settle it. */
export async function stillWaits(promise) {
  return (await Promise.race([promise.then(() => "settled"), sleep(200)])) !== "settled";
}
