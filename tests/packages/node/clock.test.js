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
  await server.clock.advance("29s999ms");
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

test("the clock is not moved to the past", async (t) => {
  const server = await frozen(t);
  const shown = await server.clock.now();
  const refused = new RegExp(`the clock shows ${shown.now_ms}, .* never goes back`);
  await assert.rejects(server.clock.set(new Date(shown.now_ms - 1)), refused);
  assert.deepEqual(await server.clock.now(), shown);
});

test("the clock begins at the chosen time", async (t) => {
  const clockStart = new Date("2001-09-09T01:46:40Z");
  const stopped = await start({ frozen: true, clockStart });
  t.after(() => stopped.stop());
  const now_ms = clockStart.getTime();
  assert.deepEqual(await stopped.clock.now(), { now_ms, wall_ms: now_ms, rate: 0 });
  const running = await start({ clockStart: now_ms + 1 });
  t.after(() => running.stop());
  assert.equal((await running.clock.now()).rate, 1);
  await running.clock.set(new Date("2001-09-10"));
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

test("a span is text with units", async (t) => {
  const server = await frozen(t);
  const { now_ms: begin } = await server.clock.now();
  for (const span of ["250ms", "30s", "1.5h", "1h30m", "0"]) await server.clock.advance(span);
  assert.equal((await server.clock.now()).now_ms - begin, 30_250 + 3 * 3_600_000);
});

test("a span without a unit is refused with the server's error", async (t) => {
  const server = await frozen(t);
  const { clock, faults } = server;
  const shown = await clock.now();
  const refused = /span is not whole milliseconds with a unit, such as 250ms/;
  for (const span of [30, "30", "soon", "0.5ms", undefined]) {
    await assert.rejects(clock.advance(span), refused);
    await assert.rejects(clock.jump(span), refused);
    await assert.rejects(clock.step(span), refused);
  }
  await assert.rejects(faults.add("delay", 30), refused);
  assert.deepEqual(await clock.now(), shown);
});

test("a reset leaves a server as it was at its start", async (t) => {
  const server = await frozen(t);
  await take(server);
  await server.call("SELECT", 3);
  await server.call("CLIENT", "SETNAME", "worker");
  await server.call("CONFIG", "SET", "notify-keyspace-events", "KEA");
  const digest = await server.call("SCRIPT", "LOAD", "return 1");
  await server.faults.add("drop", { command: "del" });
  const gate = await server.faults.gate({ command: "flushall" });
  await server.clock.run();
  const { port } = server;
  await server.reset();
  assert.equal(server.port, port);
  assert.equal(await server.call("DBSIZE"), 0);
  assert.match(await server.call("CLIENT", "INFO"), / name= .* db=0 /);
  assert.equal((await server.call("CONFIG", "GET", "notify-keyspace-events"))[1], "");
  assert.deepEqual(await server.call("SCRIPT", "EXISTS", digest), [0]);
  assert.deepEqual(await server.faults.list(), []);
  assert.deepEqual(await server.faults.gates(), []);
  await assert.rejects(gate.wait(), /no rule or gate/);
  assert.equal((await server.clock.now()).rate, 0);
  assert.deepEqual(await server.journal.entries({ key: "lock" }), []);
  await server.journal.assertEveryLockHasALease();
});
