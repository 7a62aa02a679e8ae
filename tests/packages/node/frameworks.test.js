// The package works with Jest, Vitest and node:test, and TypeScript checks its types.

import assert from "node:assert/strict";
import { test } from "node:test";

import { start } from "lockwheel";

import { FRAMEWORKS, installed, run } from "./frameworks.js";

for (const [framework, command] of Object.entries(FRAMEWORKS)) {
  test(`${framework}: files that run in parallel have their own servers`, async (t) => {
    const meeting = await start();
    t.after(() => meeting.stop());
    const variables = { MEETING_URL: meeting.url };
    const { passed, text } = await run(`projects/${framework}/together`, command, variables);
    assert.ok(passed, text);
    assert.equal(text.match(/(\u2713|ok \d+ -) a test may start more/g)?.length, 2, text);
  });

  test(`${framework}: a failed check fails the test, and prints its story once`, async () => {
    const { passed, text } = await run(`projects/${framework}/leftover`, command);
    assert.ok(!passed, text);
    for (const key of ["invoice", "order"]) {
      const story = [
        `no-lock-held: client \\d+ holds the lock '${key}' as 'token'`,
        `\\+0 ms #\\d+ client \\d+: SET ${key} token NX PX 30000 -> OK`,
        `=>\\+0 ms #\\d+ client \\d+: acquired '${key}' as 'token' for 30000 ms`,
      ];
      for (const part of story) assert.equal(text.match(new RegExp(part, "g"))?.length, 1, text);
    }
  });
}

test("TypeScript checks the types", async () => {
  const { passed, text } = await run("projects/typescript", installed("tsc"));
  assert.ok(passed, text);
});
