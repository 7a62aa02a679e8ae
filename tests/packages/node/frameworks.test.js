// Jest, Vitest and node:test each run tests with it, and TypeScript knows its types.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { start } from "leasehold";

// Far more than any of it takes.
const TIMEOUT_MS = 60_000;

const inside = (path) => fileURLToPath(new URL(path, import.meta.url));
const installed = (name) => [process.execPath, inside(`node_modules/.bin/${name}`)];

/** How each runs the tests in the folder it is in, two files at once. */
const FRAMEWORKS = {
  jest: [...installed("jest"), "--config", "../jest.config.cjs", "--rootDir", "."],
  vitest: [...installed("vitest"), "run", "--config", "../vitest.config.js", "--root", "."],
  "node-test": [process.execPath, "--test", "--test-concurrency", "2"],
};

/** Runs a command in a folder of the projects: whether it ended well, and what it wrote. */
async function run(folder, [program, ...args], variables = {}) {
  const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, NO_COLOR: "1", ...variables };
  const ending = { timeout: TIMEOUT_MS, killSignal: "SIGKILL" };
  const options = { cwd: inside(`projects/${folder}`), env, ...ending };
  return promisify(execFile)(program, args, options).then(
    ({ stdout, stderr }) => ({ passed: true, text: stdout + stderr }),
    ({ stdout, stderr }) => ({ passed: false, text: stdout + stderr }),
  );
}

for (const [framework, command] of Object.entries(FRAMEWORKS)) {
  test(`${framework}: files that run side by side have servers of their own`, async (t) => {
    const meeting = await start();
    t.after(() => meeting.stop());
    const variables = { MEETING_URL: meeting.url };
    const { passed, text } = await run(`${framework}/together`, command, variables);
    assert.ok(passed, text);
    assert.equal(text.match(/(\u2713|ok \d+ -) a test may start more/g)?.length, 2, text);
  });

  test(`${framework}: a lock that is left over fails the test`, async () => {
    const { passed, text } = await run(`${framework}/leftover`, command);
    assert.ok(!passed, text);
    assert.match(text, /CHECK no-lock-held: client \d+ holds the lock 'invoice' as 'token'/);
    assert.match(text, /\+0 ms #\d+ client \d+: SET invoice token NX PX 30000 -> OK/);
  });
}

test("TypeScript knows the types", async () => {
  const { passed, text } = await run("typescript", installed("tsc"));
  assert.ok(passed, text);
});
