// How a behaviour of a library is written down, run and reported.

import { appendFileSync, readFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { describe, it } from "node:test";

// More at once would keep each other from renewing leases in time.
const AT_ONCE = 8;

// What takes longer hangs.
const TIMEOUT_MS = 60_000;

/** Thrown by a behaviour that this library, or this machine, does not have. */
class Skipped extends Error {}

/** Ends the running behaviour as skipped. */
export function skip(reason) {
  throw new Skipped(reason);
}

/**
 * Groups the behaviours of one library. They run side by side, so each takes names of its own.
 * `body(behaviour)` calls `behaviour(sentence, test)`.
 */
export function library(name, packageName, body) {
  const version = installedVersion(packageName);
  describe(`${name} ${version}`, { concurrency: AT_ONCE }, () => {
    body((behaviour, test) => {
      const line = { library: name, version, behaviour };
      it(behaviour, { timeout: TIMEOUT_MS }, (t) => run(line, t, test));
    });
  });
}

async function run(line, t, test) {
  try {
    await test(t);
    report({ ...line, outcome: "passed" });
  } catch (error) {
    const outcome = error instanceof Skipped ? "skipped" : "failed";
    report({ ...line, outcome, reason: String(error.message).split("\n")[0] });
    if (outcome === "failed") throw error;
    t.skip(error.message);
  }
}

function report(line) {
  const path = process.env.CLIENTS_REPORT;
  if (path) appendFileSync(path, `${JSON.stringify(line)}\n`);
}

function installedVersion(packageName) {
  const path = new URL(`node_modules/${packageName}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(path, "utf8")).version.replace(/^v/, "");
}

/** A name that no other test uses. */
export function uniqueName() {
  return `resource-${randomBytes(6).toString("hex")}`;
}
