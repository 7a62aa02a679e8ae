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

// How long somebody stays inside: another who gets in meanwhile reads the old count.
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
