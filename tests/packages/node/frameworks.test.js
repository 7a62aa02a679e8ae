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

  test(`${framework}: a lock that is still held fails the test`, async () => {
    const { passed, text } = await run(`projects/${framework}/leftover`, command);
    assert.ok(!passed, text);
    const story = [
      /no-lock-held: client \d+ holds the lock 'invoice' as 'token'/g,
      /\+0 ms #\d+ client \d+: SET invoice token NX PX 30000 -> OK/g,
      /=>\+0 ms #\d+ client \d+: acquired 'invoice' as 'token' for 30000 ms/g,
    ];
    for (const part of story) assert.equal(text.match(part)?.length, 1, text);
  });
}

test("TypeScript checks the types", async () => {
  const { passed, text } = await run("projects/typescript", installed("tsc"));
  assert.ok(passed, text);
});
