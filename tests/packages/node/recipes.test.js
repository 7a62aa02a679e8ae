// Mistakes of common lock recipes. Each has two tests: the mistake, shown with the clock and the
// faults, and its correction under the same conditions. With ioredis; some corrections use redlock.

import assert from "node:assert/strict";
import { test } from "node:test";

import Redis from "ioredis";
import { start } from "lockwheel";
import Redlock from "redlock";

const YEAR = "365d";
const LEASE_MS = 10_000;
const LEASE = `${LEASE_MS}ms`;

const COMPARE_AND_DELETE = `
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`;

const COMPARE_AND_RENEW = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
else
  return 0
end`;

// Redisson's scripts, which count the holds of the owner.
const COUNTING_LOCK = `
if (redis.call('exists', KEYS[1]) == 0) then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`;

const COUNTING_UNLOCK = `
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if counter > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1`;

/** Starts a server with a stopped clock, which stops with the test. */
async function frozen(t) {
  const server = await start({ frozen: true });
  t.after(() => server.stop());
  return server;
}

/** A client that ends with its connection. By default ioredis reconnects and sends again. */
function connect(t, server, options = { retryStrategy: null }) {
  const redis = new Redis(server.url, options);
  redis.on("error", () => {});
  t.after(() => redis.disconnect());
  return redis;
}

/** A server with a stopped clock, and clients. */
async function serverAndClients(t, count) {
  const server = await frozen(t);
  return [server, ...Array.from({ length: count }, () => connect(t, server))];
}

/** Whether the lock is this token's from now on, for ten seconds. */
async function take(redis, token) {
  return (await redis.set("lock", token, "PX", LEASE_MS, "NX")) === "OK";
}

/** Releases the lock if it is this token's. Whether it was. */
async function release(redis, token) {
  return (await redis.eval(COMPARE_AND_DELETE, 1, "lock", token)) === 1;
}

/** Gives the lock ten more seconds if it is this token's. Whether it was. */
async function renew(redis, token) {
  return (await redis.eval(COMPARE_AND_RENEW, 1, "lock", token, LEASE_MS)) === 1;
}

async function mistakes(server) {
  return (await server.journal.lint()).map(({ rule }) => rule);
}

const BROKEN = { name: "CheckError" };
const CLOSED = /Connection is closed/;

test("setnx without a lease", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  assert.equal(await a.setnx("lock", "a"), 1);
  a.disconnect(); // It dies.
  await server.clock.advance(YEAR);
  assert.equal(await b.setnx("lock", "b"), 0);
  await assert.rejects(server.journal.assertEveryLockHasALease(), BROKEN);
  assert.deepEqual(await mistakes(server), ["lock-without-lease"]);
});

test("setnx without a lease corrected", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  assert.ok(await take(a, "a"));
  a.disconnect();
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  await server.journal.assertEveryLockHasALease();
});

test("setnx then expire", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  await server.faults.add("close", { command: "expire" });
  assert.equal(await a.setnx("lock", "a"), 1);
  await assert.rejects(a.expire("lock", 10), CLOSED);
  await server.clock.advance(YEAR);
  assert.equal(await b.setnx("lock", "b"), 0);
  await assert.rejects(server.journal.assertEveryLockHasALease(), BROKEN);
});

test("setnx then expire corrected", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  await server.faults.add("lose-and-close", { command: "set", nth: 1 });
  await assert.rejects(take(a, "a"), CLOSED);
  assert.ok(!(await take(b, "b")), "a has it, and does not know");
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  await server.journal.assertEveryLockHasALease();
});

test("release without a check", async (t) => {
  const [server, a, b, c] = await serverAndClients(t, 3);
  assert.ok(await take(a, "locked"));
  await server.clock.advance(LEASE); // It still works ...
  assert.ok(await take(b, "locked"));
  await a.del("lock"); // ... and is done.
  assert.ok(await take(c, "locked"), "b and c are inside");
  await assert.rejects(server.journal.assertReleasedOnlyByOwner(), BROKEN);
  assert.ok((await mistakes(server)).includes("delete-without-check"));
});

test("release without a check corrected", async (t) => {
  const [server, a, b, c] = await serverAndClients(t, 3);
  assert.ok(await take(a, "a"));
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  assert.ok(!(await release(a, "a")));
  assert.ok(!(await take(c, "c")));
  assert.ok(await release(b, "b"));
  await server.journal.assertReleasedOnlyByOwner();
  await server.journal.assertNoLockHeld();
});

/**
 * A client holds the lock, and before the last command of its release its lease ends and another
 * takes the lock. Gives the server and what the release gave.
 */
async function whileItIsReleased(t, lastCommand, release) {
  const [server, a, b] = await serverAndClients(t, 2);
  assert.ok(await take(a, "a"));
  const gate = await server.faults.gate({ command: lastCommand });
  const released = release(a);
  await gate.wait();
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  await gate.open();
  return [server, await released];
}

test("check then delete", async (t) => {
  const [server] = await whileItIsReleased(t, "del", async (a) => {
    if ((await a.get("lock")) === "a") await a.del("lock");
  });
  assert.equal(await server.call("GET", "lock"), null, "b works, and holds nothing");
  assert.ok((await mistakes(server)).includes("compare-and-delete-in-two-steps"));
});

test("check then delete corrected", async (t) => {
  const [byScript, released] = await whileItIsReleased(t, "eval", (a) => release(a, "a"));
  assert.ok(!released);
  assert.equal(await byScript.call("GET", "lock"), "b");

  const [byTransaction, deleted] = await whileItIsReleased(t, "exec", async (a) => {
    await a.watch("lock");
    assert.equal(await a.get("lock"), "a");
    return a.multi().del("lock").exec();
  });
  assert.equal(deleted, null);
  assert.equal(await byTransaction.call("GET", "lock"), "b");
});

test("work longer than the lease", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  let inside = 0;
  assert.ok(await take(a, "a"));
  inside += 1;
  await server.clock.advance(LEASE);
  if (await take(b, "b")) inside += 1;
  assert.equal(inside, 2);
  await server.clock.advance("5s");
  assert.ok(!(await release(a, "a")), "after fifteen seconds the release is refused");
  assert.ok((await mistakes(server)).includes("lease-shorter-than-hold"));
  await assert.rejects(server.journal.assertNeverTwoHolders(), BROKEN);
});

test("work longer than the lease corrected", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  assert.ok(await take(a, "a"));
  for (let third = 1; third <= 5; third += 1) {
    await server.clock.advance(`${Math.floor(LEASE_MS / 3)}ms`);
    assert.ok(await renew(a, "a"));
    assert.ok(!(await take(b, "b")));
  }
  assert.ok(await release(a, "a"));
  assert.ok(await take(b, "b"));
  assert.deepEqual(await mistakes(server), []);
  await server.journal.assertNeverTwoHolders();
});

test("renewal without a check", async (t) => {
  const [server, a, b, c] = await serverAndClients(t, 3);
  assert.ok(await take(a, "a"));
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  b.disconnect(); // Simulates a crash. No client should wait for longer than the lease.
  await server.clock.advance("9s");
  assert.notEqual(await a.get("lock"), null, "there is a lock ...");
  assert.equal(await a.expire("lock", 10), 1, "... so it is renewed");
  await server.clock.advance("1s");
  assert.ok(!(await take(c, "c")));
  assert.ok((await mistakes(server)).includes("renewal-after-loss"));
});

test("renewal without a check corrected", async (t) => {
  const [server, a, b, c] = await serverAndClients(t, 3);
  assert.ok(await take(a, "a"));
  await server.clock.advance(LEASE);
  assert.ok(await take(b, "b"));
  b.disconnect();
  await server.clock.advance("9s");
  assert.ok(!(await renew(a, "a")), "and so it learns that it must stop");
  await server.clock.advance("1s");
  assert.ok(await take(c, "c"));
});

test("not reentrant", async (t) => {
  const [server, a] = await serverAndClients(t, 1);
  assert.ok(await take(a, "a"));
  assert.ok(!(await take(a, "a")), "it waits for itself ...");
  await server.clock.advance(LEASE);
  assert.ok(await take(a, "a"), "... until it has lost what it waited for");
});

test("not reentrant corrected", async (t) => {
  const [server, a, b] = await serverAndClients(t, 2);
  const lock = (redis, owner) => redis.eval(COUNTING_LOCK, 1, "lock", LEASE_MS, owner);
  const unlock = () => a.eval(COUNTING_UNLOCK, 2, "lock", "released", 0, LEASE_MS, "a:1");
  assert.equal(await lock(a, "a:1"), null);
  assert.equal(await lock(a, "a:1"), null);
  assert.equal(await a.hget("lock", "a:1"), "2");
  assert.equal(await unlock(), 0, "still inside");
  assert.equal(await lock(b, "b:1"), LEASE_MS);
  assert.equal(await unlock(), 1);
  assert.equal(await lock(b, "b:1"), null);
  await server.journal.assertReleasedOnlyByOwner();
});

/** Returns a function that lists the channels of the received messages, synchronised by a PING. */
async function listen(redis, ...channels) {
  const received = [];
  redis.on("message", (channel) => received.push(channel));
  await redis.subscribe(...channels);
  return async () => {
    await redis.ping();
    return received;
  };
}

test("waiting for the release message alone", async (t) => {
  const [server, a, b, listener] = await serverAndClients(t, 3);
  assert.ok(await take(a, "a"));
  assert.ok(!(await take(b, "b")));
  const received = await listen(listener, "released");
  a.disconnect(); // A crashed holder does not publish.
  await server.clock.advance(YEAR);
  assert.equal(await b.exists("lock"), 0);
  assert.deepEqual(await received(), [], "the lock is free, and b waits");
});

test("waiting for the release message alone corrected", async (t) => {
  const [server, a, b, listener] = await serverAndClients(t, 3);
  await b.config("SET", "notify-keyspace-events", "Ex");
  assert.ok(await take(a, "a"));
  assert.ok(!(await take(b, "b")));
  // It waits for a message, but for no longer than the lease, or for the end of the lease too.
  const remainingMs = await b.pttl("lock");
  const received = await listen(listener, "released", "__keyevent@0__:expired");
  a.disconnect();
  await server.clock.advance(`${remainingMs}ms`);
  assert.deepEqual(await received(), ["__keyevent@0__:expired"]);
  assert.ok(await take(b, "b"));
});

test("lost reply", async (t) => {
  const server = await frozen(t);
  await server.faults.add("lose-and-close", { command: "set", nth: 1 });
  // By default ioredis reconnects and sends requests without a reply again.
  const a = connect(t, server, {});
  assert.ok(!(await take(a, "a1")), "its own lock keeps it out");
  for (const token of ["a2", "a3", "a4"]) {
    assert.ok(!(await take(a, token)));
    await server.clock.advance("3s");
  }
  await server.clock.advance("1s");
  assert.ok(await take(a, "a5"));
});

test("lost reply corrected", async (t) => {
  const server = await frozen(t);
  await server.faults.add("lose-and-close", { command: "set", nth: 1 });
  const a = connect(t, server, {});
  // A refused client checks whether the lock has its own token.
  assert.ok((await take(a, "a")) || (await a.get("lock")) === "a");
  assert.ok(await renew(a, "a"), "from now on for the whole lease");
  assert.ok(await release(a, "a"));
});

test("failover loses the lock", async (t) => {
  const [server, a] = await serverAndClients(t, 1);
  assert.ok(await take(a, "a"));
  assert.equal(await server.faults.failover({ lose: 1 }), 1);
  assert.ok(await take(connect(t, server), "b"), "both are inside");
});

/** Three independent servers. */
function three(t) {
  return Promise.all([1, 2, 3].map(() => frozen(t)));
}

/** A redlock that tries once. */
function redlock(t, servers) {
  const clients = servers.map((server) => connect(t, server));
  const made = new Redlock(clients, { retryCount: 0 });
  made.on("error", () => {});
  return made;
}

test("failover loses the lock corrected", async (t) => {
  const servers = await three(t);
  const lock = await redlock(t, servers).acquire(["lock"], LEASE_MS);
  const isHeldOn = async (server) => (await server.call("GET", "lock")) === lock.value;
  // It has the lock once most servers have replied; the third request may be in progress.
  for (const server of servers) while (!(await isHeldOn(server)));
  await servers[1].faults.failover({ lose: 1 });
  await assert.rejects(redlock(t, servers).acquire(["lock"], LEASE_MS), "one of three is not most");
});

/** The number of servers that confirmed the lock of this token. */
async function takeOnEach(t, servers, token) {
  let count = 0;
  for (const server of servers) {
    if (await take(connect(t, server), token).catch(() => false)) count += 1;
  }
  return count;
}

async function releaseOnEach(t, servers, token) {
  for (const server of servers) await release(connect(t, server), token);
}

/** Takes the lock while each server needs four seconds for it: on how many, and in what time. */
async function takeSlowly(t, servers, token) {
  const now = async () => (await servers[0].clock.now()).now_ms;
  // From the last on: a client uses the servers in order, so each clock has moved before.
  const advance = async (span) => {
    for (const { clock } of [...servers].reverse()) await clock.advance(span);
  };
  const slow = (server) => server.faults.add("delay", "4s", { command: "set", nth: 1 });
  const begin = await now();
  const rules = await Promise.all(servers.map(slow));
  const taken = takeOnEach(t, servers, token);
  for (const rule of rules) {
    while ((await rule.counts()).fired === 0);
    await advance("4s");
  }
  return { count: await taken, elapsedMs: (await now()) - begin, advance };
}

test("slow majority", async (t) => {
  const servers = await three(t);
  const { count, advance } = await takeSlowly(t, servers, "a");
  assert.equal(count, 3, "so it believes that it holds the lock, for ten seconds");
  await advance("6s");
  assert.equal(await takeOnEach(t, servers, "b"), 2, "b holds it as well");
});

test("slow majority corrected", async (t) => {
  const servers = await three(t);
  const { count, elapsedMs } = await takeSlowly(t, servers, "a");
  assert.equal(count, 3);
  assert.ok(LEASE_MS - elapsedMs <= 0, "there is nothing left of the lease, so it is no lock");
  await releaseOnEach(t, servers, "a");
  assert.equal(await takeOnEach(t, servers, "b"), 3);
});

/** A takes the lock on one of three; the others give it as well, and their answers are lost. */
async function takeUnknowingly(t, servers) {
  for (const server of servers.slice(1)) {
    await server.faults.add("lose-and-close", { command: "set", nth: 1 });
  }
  assert.equal(await takeOnEach(t, servers, "a"), 1, "it gives up");
}

test("leftovers of a failed majority", async (t) => {
  const servers = await three(t);
  await takeUnknowingly(t, servers);
  await releaseOnEach(t, servers.slice(0, 1), "a"); // Where it knows that it has it.
  assert.equal(await takeOnEach(t, servers, "b"), 1, "no client holds the lock, and none can take it");
  await assert.rejects(servers[1].journal.assertNoLockHeld(), BROKEN);
});

test("leftovers of a failed majority corrected", async (t) => {
  const servers = await three(t);
  await takeUnknowingly(t, servers);
  await releaseOnEach(t, servers, "a");
  for (const server of servers) await server.journal.assertNoLockHeld();
  assert.equal(await takeOnEach(t, servers, "b"), 3);
});
