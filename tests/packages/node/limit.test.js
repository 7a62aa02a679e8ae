// The time limit of a call without a reply, under fake timers.

import assert from "node:assert/strict";
import { mock, test } from "node:test";

// Before the package imports them.
mock.timers.enable({ apis: ["setTimeout"] });
const { start } = await import("lockwheel");

test("a call without a reply is rejected after a minute", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  const rule = await server.faults.add("drop", { command: "ping", times: 1 });
  const ping = assert.rejects(server.call("PING"), { message: "PING: no reply within 60000 ms" });
  while ((await rule.counts()).fired === 0);
  mock.timers.tick(60_000);
  await ping;
  assert.equal(await server.call("PING"), "PONG");
});
