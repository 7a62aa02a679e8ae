// A call that is never answered is told of in the end: with the timers of this file, at once.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

// Before the package takes them.
mock.timers.enable({ apis: ["setTimeout"] });
const { start } = await import("lockwheel");

test("a call that is never answered is rejected after a minute", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  const rule = await server.faults.add("drop", { command: "ping", times: 1 });
  const ping = assert.rejects(server.call("PING"), { message: "PING: not answered for 60000 ms" });
  while ((await rule.counts()).fired === 0);
  mock.timers.tick(60_000);
  await ping;
  assert.equal(await server.call("PING"), "PONG");
});
