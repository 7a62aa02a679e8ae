// The clock: stopping it, moving it, and the events that are due on the way.

import assert from "node:assert/strict";
import { test } from "node:test";

import { start } from "lockwheel";

/** Starts a server with a stopped clock, which stops with the test. */
async function frozen(t) {
  const server = await start({ frozen: true });
  t.after(() => server.stop());
  return server;
}

function take(server) {
  return server.call("SET", "lock", "token", "NX", "PX", 30_000);
}

test("a lease ends when the clock is moved to its end, and not before", async (t) => {
  const server = await frozen(t);
  await take(server);
  await server.clock.advance(29_999);
  assert.equal(await server.call("PTTL", "lock"), 1);
  await server.clock.advance("1ms");
  assert.equal(await server.call("GET", "lock"), null);
});

test("the clock is moved to a moment", async (t) => {
  const server = await frozen(t);
  const moment = new Date("2100-01-01T00:00:00Z");
  await server.clock.set(moment);
  const shown = { now_ms: moment.getTime(), wall_ms: moment.getTime(), rate: 0 };
  assert.deepEqual(await server.clock.now(), shown);
  await server.clock.set(moment.getTime() + 5);
  assert.equal((await server.clock.now()).now_ms, moment.getTime() + 5);
});

test("a jump ends leases early or makes them last longer", async (t) => {
  const server = await frozen(t);
  await take(server);
  await server.clock.jump("-1h");
  assert.equal(await server.call("PTTL", "lock"), 3_630_000);
  await server.clock.jump("2h");
  assert.equal(await server.call("EXISTS", "lock"), 0);
});

test("a step moves only the wall clock and no lease", async (t) => {
  const server = await frozen(t);
  await take(server);
  await server.clock.step("1d");
  const { now_ms, wall_ms } = await server.clock.now();
  assert.equal(wall_ms - now_ms, 24 * 3_600_000);
  assert.equal(await server.call("PTTL", "lock"), 30_000);
});

test("the clock runs, also faster than real time, and stops", async (t) => {
  const server = await frozen(t);
  await server.clock.run();
  assert.equal((await server.clock.now()).rate, 1);
  await server.clock.run(1_000_000);
  await take(server);
  while (await server.call("EXISTS", "lock"));
  await server.clock.freeze();
  assert.equal((await server.clock.now()).rate, 0);
});

test("an invalid span is refused with the server's error", async (t) => {
  const server = await frozen(t);
  await assert.rejects(server.clock.advance("soon"), /span is not a number of milliseconds/);
});

test("a reset leaves a server as it was at its start", async (t) => {
  const server = await frozen(t);
  await take(server);
  await server.faults.add("drop", { command: "del" });
  const gate = await server.faults.gate({ command: "flushall" });
  await server.clock.run();
  await server.reset();
  assert.equal(await server.call("DBSIZE"), 0);
  assert.deepEqual(await server.faults.list(), []);
  assert.deepEqual(await server.faults.gates(), []);
  await assert.rejects(gate.wait(), /no rule or gate/);
  assert.equal((await server.clock.now()).rate, 0);
  assert.deepEqual(await server.journal.entries({ key: "lock" }), []);
  await server.journal.assertEveryLockHasALease();
});
