// Declares, runs and reports behaviours of libraries: one line for each in the file that
// SUITE_REPORT names.

import { appendFileSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";

/** Thrown by a behaviour that this library or this machine does not support. */
class Skipped extends Error {}

/** Ends the running behaviour as skipped. */
export function skip(reason) {
  throw new Skipped(reason);
}

/**
 * Groups the behaviours of one library, which is installed as `packageName` beside the module
 * `beside`; `concurrency` many run at once, each for up to `timeoutMs`. `body(behaviour)` calls
 * `behaviour(sentence, test)`.
 */
export function group({ name, packageName, beside, concurrency = 1, timeoutMs }, body) {
  const version = installedVersion(packageName, beside);
  describe(`${name} ${version}`, { concurrency }, () => {
    body((behaviour, test) => {
      const line = { library: name, version, behaviour };
      it(behaviour, { timeout: timeoutMs }, (t) => run(line, t, test));
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
  const path = process.env.SUITE_REPORT;
  if (path) appendFileSync(path, `${JSON.stringify(line)}\n`);
}

function installedVersion(packageName, beside) {
  const path = new URL(`node_modules/${packageName}/package.json`, beside);
  return JSON.parse(readFileSync(path, "utf8")).version.replace(/^v/, "");
}
