// Checks that the tests of all libraries share.

import { randomBytes } from "node:crypto";

import { group, skip } from "../../report/node/report.mjs";

// More at once would keep each other from renewing leases in time.
const AT_ONCE = 8;

// What takes longer hangs.
const TIMEOUT_MS = 60_000;

export { skip };

/**
 * Groups the behaviours of one library. They run side by side, so each takes names of its own.
 * `body(behaviour)` calls `behaviour(sentence, test)`.
 */
export function library(name, packageName, body) {
  const beside = import.meta.url;
  group({ name, packageName, beside, concurrency: AT_ONCE, timeoutMs: TIMEOUT_MS }, body);
}

/** A name that no other test uses. */
export function uniqueName() {
  return `resource-${randomBytes(6).toString("hex")}`;
}
