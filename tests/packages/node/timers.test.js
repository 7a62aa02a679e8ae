// The README's statements on the timers of client libraries and a stopped clock.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mock, test } from "node:test";

import { Queue, Worker } from "bullmq";
import Redis from "ioredis";
import { start } from "lockwheel";
import Redlock from "redlock";

/** Starts a server with a stopped clock and fakes these timers, until the test ends. */
async function frozen(t, apis) {
  const server = await start({ frozen: true });
  t.after(() => server.stop());
  mock.timers.enable({ apis, now: Date.now() });
  t.after(() => mock.timers.reset());
  return server;
}

/** What has become of a promise after many more turns than it takes. */
async function stillWaits(server, promise) {
  let waits = true;
  promise.then(() => (waits = false));
  for (let turn = 0; turn < 100; turn += 1) await server.call("PING");
  return waits;
}

test("ioredis reconnects by a timer", async (t) => {
  const server = await frozen(t, ["setTimeout"]);
  const redis = new Redis(server.url);
  t.after(() => redis.disconnect());
  await redis.ping();
  await Promise.all([once(redis, "reconnecting"), server.faults.failover()]);
  const pong = redis.ping();
  assert.ok(await stillWaits(server, pong));
  mock.timers.tick(1_000);
  assert.equal(await pong, "PONG");
});

test("redlock retries by a timer and computes the lease by Date", async (t) => {
  const server = await frozen(t, ["setTimeout", "Date"]);
  const redis = new Redis(server.url);
  t.after(() => redis.disconnect());
  await redis.set("lock", "another", "PX", 10_000);
  const redlock = new Redlock([redis], { retryCount: 1, retryDelay: 1_000, retryJitter: 0 });
  const acquired = redlock.acquire(["lock"], 30_000);
  assert.ok(await stillWaits(server, acquired));
  await server.clock.advance("10s");
  assert.ok(await stillWaits(server, acquired), "the lock is free, and it waits for its second");
  mock.timers.tick(1_000);
  const lock = await acquired;
  // A hundredth and 2 ms are for drift; it counts from when it was asked, not when it was given.
  assert.equal(lock.expiration - Date.now(), 30_000 - 302 - 1_000);
});

test("redlock returns an expired lock if its servers were slow", async (t) => {
  const server = await frozen(t, ["Date"]);
  const redis = new Redis(server.url);
  t.after(() => redis.disconnect());
  const rule = await server.faults.add("delay", "11s", { command: "eval", nth: 1 });
  const acquired = new Redlock([redis]).acquire(["lock"], 10_000);
  while ((await rule.counts()).fired === 0);
  mock.timers.tick(11_000);
  await server.clock.advance("11s");
  assert.ok((await acquired).expiration < Date.now());
});

test("BullMQ: a delayed job is due by Date, whatever the server's clock shows", async (t) => {
  const server = await frozen(t, ["Date"]);
  const connection = { host: server.host, port: server.port };
  const queue = new Queue("jobs", { connection });
  let done = false;
  const worker = new Worker("jobs", async () => (done = true), { connection });
  const job = await queue.add("remind", "invoice 7", { delay: 3_600_000 });
  for (let hour = 0; hour < 24; hour += 1) await server.clock.advance("1h");
  assert.equal(await job.getState(), "delayed");
  mock.timers.tick(3_600_000);
  while (!done) await server.clock.advance("10s");
  await Promise.all([queue.close(), worker.close()]);
});
