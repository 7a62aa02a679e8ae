// Lock objects, over each supported version of ioredis and of node-redis with the same tests.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { mock, test } from "node:test";

import Redis from "ioredis";
import Redis5 from "ioredis5";
import { start } from "lockwheel";
import { Lock, LockError, LockLost, NoNativeLocks, NotAcquired } from "lockwheel/locks";
import * as redis from "redis";
import * as redis4 from "redis4";
import * as redis5 from "redis5";

import { inside } from "./frameworks.js";

/** A lease that does not end by the clock of a process, however slow it is. */
const LEASE_MS = 600_000;

const ioredis = (Type) => (url, { database, name, protocol, limitMs, ...more }) => {
  const limits = limitMs ? { commandTimeout: limitMs, socketTimeout: limitMs } : {};
  const path = url.replace("unix://", "");
  return new Type(path, {
    db: database,
    connectionName: name,
    protocol,
    lazyConnect: true,
    ...limits,
    ...more,
  });
};

const nodeRedis = ({ createClient }) => (url, { protocol, limitMs, ...more }) => {
  const socket = limitMs ? { socketTimeout: limitMs } : {};
  if (url.startsWith("unix://")) return createClient({ socket: { path: url.slice(7) } });
  return createClient({ url, socket, RESP: protocol, ...more });
};

/** What makes the client of a server. */
const LIBRARIES = {
  "ioredis 6": ioredis(Redis),
  "ioredis 5": ioredis(Redis5),
  "node-redis 6": nodeRedis(redis),
  "node-redis 5": nodeRedis(redis5),
  "node-redis 4": nodeRedis(redis4),
};

/** Adds a test for each library, of a server with a stopped clock. */
function each(title, body, libraries = Object.keys(LIBRARIES)) {
  for (const library of libraries) {
    test(`${title} (${library})`, async (t) => body(await begin(t, LIBRARIES[library])));
  }
}

/** A server, and a function that makes locks whose leases are not renewed by default. */
async function begin(t, connect, options = {}) {
  const server = await start({ frozen: true, ...options });
  const made = [];
  const lock = (options = {}, key = "lock", settings = {}) => {
    const all = { ttlMs: LEASE_MS, renewMs: 0, ...options };
    made.push(new Lock(connect(server.url, settings), key, all));
    return made.at(-1);
  };
  t.after(async () => {
    for (const lock of made) await lock.release();
    await server.stop();
  });
  return { server, lock };
}

/** The reply with its pairs as objects. */
function fields(reply) {
  if (!Array.isArray(reply)) return reply;
  if (typeof reply[0] !== "string") return reply.map(fields);
  const pairs = {};
  for (let at = 0; at < reply.length; at += 2) pairs[reply[at]] = fields(reply[at + 1]);
  return pairs;
}

const info = async (server, key = "lock") => fields(await server.call("LOCK.INFO", key));

/** The only owner of a lock. */
async function holder(server, key) {
  const { holders } = await info(server, key);
  assert.equal(holders.length, 1);
  return holders[0];
}

const queue = async (server) => (await info(server)).queue.map(({ owner }) => owner);

async function freePort() {
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address();
  await new Promise((resolve) => free.close(resolve));
  return port;
}

/** Repeats the condition until it is true. */
async function until(condition) {
  while (!(await condition()));
}

const renewed = (server) => until(async () => (await holder(server)).ttl === LEASE_MS);

/** Collects the locks that `onLost` is called with. */
function losses() {
  const lost = [];
  let tell;
  const first = new Promise((resolve) => (tell = resolve));
  const onLost = (lock) => {
    lost.push(lock);
    tell();
  };
  return { lost, first, onLost };
}

each("a lock is held until it is released", async ({ server, lock }) => {
  const held = lock({ meta: "job 7" });
  assert.equal(held.token, undefined);
  assert.ok(!(await held.release()));
  assert.ok((await held.acquire()) && held.isHeld);
  const shown = await holder(server);
  assert.deepEqual([shown.owner, shown.token], [held.owner, held.token]);
  assert.deepEqual([shown.meta, shown.grace, shown.ttl], ["job 7", null, LEASE_MS]);
  assert.ok(held.owner.includes(`:${process.pid}:`));

  const other = lock();
  assert.notEqual(other.owner, held.owner);
  assert.equal(await other.acquire(), false);
  await assert.rejects(other.hold(), (error) => {
    assert.ok(error instanceof NotAcquired && error instanceof LockError);
    assert.match(error.message, /'lock' .*\(refused\): owners 1, lease 600000 ms, queue 0$/);
    return error.name === "NotAcquired";
  });
  await assert.rejects(held.acquire(), /holds the lock 'lock' already/);
  assert.ok((await held.release()) && !held.isHeld && !held.signal.aborted);
  assert.equal(await info(server), null);
  await server.journal.assertNoLockHeld();
});

each("a lock is held while a function runs", async ({ server, lock }) => {
  const held = lock();
  const result = await held.using(async (given) => {
    assert.ok(given === held && held.isHeld);
    return (await holder(server)).token;
  });
  assert.ok(result === held.token && !held.isHeld);
  await assert.rejects(
    held.using(() => {
      throw new RangeError("the error of the function");
    }),
    RangeError,
  );
  assert.equal(await info(server), null);
  await held.using(() => held.release());
});

each("the function of a lost lock ends with an error", async ({ server, lock }) => {
  const lose = () => server.call("LOCK.FORCE", "lock");
  const held = lock();
  const lost = /^LockLost: the lock 'lock' with the token \d+ was lost$/;
  await assert.rejects(held.using(lose), (error) => error instanceof LockLost && lost.test(error));
  assert.match(String(held.signal.reason), lost);
  // The error of the function itself is not replaced.
  const fails = held.using(async () => {
    await lose();
    throw new RangeError();
  });
  await assert.rejects(fails, RangeError);
});

test("a lock is released at the end of a block", async (t) => {
  if (!Symbol.asyncDispose) return t.skip("there is no await using");
  const { server, lock } = await begin(t, LIBRARIES["ioredis 6"]);
  const held = await lock().hold();
  await held[Symbol.asyncDispose]();
  assert.equal(await info(server), null);
  await held.hold();
  await server.call("LOCK.FORCE", "lock");
  await assert.rejects(held[Symbol.asyncDispose](), LockLost);
});

each("tokens grow", async ({ lock }) => {
  const held = lock();
  const tokens = [];
  for (let count = 0; count < 3; count += 1) {
    await held.hold();
    tokens.push(held.token);
    await held.release();
  }
  assert.ok(tokens.every(Number.isSafeInteger) && tokens[0] > 0);
  assert.ok(tokens[0] < tokens[1] && tokens[1] < tokens[2]);
});

each("owners share a lock and permits", async ({ server, lock }) => {
  const readers = [lock({ shared: true }), lock({ shared: true })];
  for (const reader of readers) assert.ok(await reader.acquire());
  assert.ok(!(await lock().acquire()));
  const { holders } = await info(server);
  assert.deepEqual(
    holders.map(({ owner }) => owner),
    readers.map(({ owner }) => owner),
  );
  const two = { permits: [2, 3] };
  assert.ok(await lock(two, "jobs").acquire());
  assert.ok(!(await lock(two, "jobs").acquire()));
  assert.equal((await holder(server, "jobs")).permits, 2);
});

each("locks with one owner are held at the same time", async ({ server, lock }) => {
  const [first, second] = [lock({ owner: "me" }), lock({ owner: "me" })];
  assert.ok((await first.acquire()) && (await second.acquire()));
  assert.equal(first.token, second.token);
  assert.ok(await first.release());
  assert.equal((await holder(server)).count, 1);
  assert.ok(await second.release());
  assert.equal(await info(server), null);
});

each("a lost reply to a release is not that of another object", async ({ server, lock }) => {
  const [first, second] = [lock({ owner: "me" }), lock({ owner: "me" })];
  assert.ok((await first.acquire()) && (await second.acquire()));
  await server.faults.add("lose-and-close", { command: "lock.release", nth: 1 });
  await assert.rejects(first.release());
  assert.ok(!first.isHeld);
  assert.equal((await holder(server)).count, 1);
});

each("waiters get the lock in order", async ({ server, lock }) => {
  let holds = await lock().hold();
  const waiters = [];
  for (let count = 1; count <= 3; count += 1) {
    // The limits of the client do not apply to waiting.
    const waiter = lock({ waitMs: 60_000 }, "lock", { limitMs: 1 });
    waiters.push([waiter, waiter.acquire()]);
    await until(async () => (await queue(server)).length === count);
  }
  assert.deepEqual(
    await queue(server),
    waiters.map(([{ owner }]) => owner),
  );
  for (const [waiter, acquired] of waiters) {
    await holds.release();
    assert.ok(await acquired);
    assert.equal((await holder(server)).owner, waiter.owner);
    holds = waiter;
  }
});

each("a wait ends by the clock of the server", async ({ server, lock }) => {
  await lock().hold();
  const waiter = lock();
  const acquired = waiter.acquire({ waitMs: 60_000 });
  await until(async () => (await queue(server)).length === 1);
  await server.clock.advance("59s999ms");
  assert.deepEqual(await queue(server), [waiter.owner]);
  await server.clock.advance("1ms");
  assert.equal(await acquired, false);
});

each("a wait ends with its signal", async ({ server, lock }) => {
  await lock().hold();
  const waiter = lock({ waitMs: 60_000 });
  const controller = new AbortController();
  const acquired = waiter.acquire({ signal: controller.signal });
  await until(async () => (await queue(server)).length === 1);
  const reason = new RangeError();
  controller.abort(reason);
  await assert.rejects(acquired, reason);
  await until(async () => (await queue(server)).length === 0);
  await assert.rejects(waiter.acquire({ signal: controller.signal }), reason);
  assert.ok(!waiter.isHeld);
});

each("a connection in progress ends with the signal", async ({ server, lock }) => {
  const clients = async () => (await server.call("CLIENT", "LIST")).match(/id=/g).length;
  const before = await clients();
  const controller = new AbortController();
  const acquired = lock().acquire({ signal: controller.signal });
  await null;
  controller.abort();
  await assert.rejects(acquired, { name: "AbortError" });
  // The connections are accepted in order.
  const held = await lock({}, "another").hold();
  await until(async () => (await clients()) === before + 1);
  assert.ok(held.isHeld);
});

each("a lease is renewed", async ({ server, lock }) => {
  const held = await lock({ renewMs: 1 }).hold();
  for (let count = 0; count < 3; count += 1) {
    await server.clock.advance("9m59s");
    await renewed(server);
  }
  assert.ok(await held.release());
  await server.journal.assertRenewedBeforeExpiry();
});

const SHORT = [{ ttlMs: 300 }, { bound: true, graceMs: 300 }, { bound: true, graceMs: 0 }];
each("a lock renews itself by default", async ({ server, lock }) => {
  // A rule without an effect counts the requests.
  const rule = await server.faults.add("flush-scripts", { command: "lock.renew" });
  for (const options of SHORT) {
    const held = await lock({ renewMs: undefined, ...options }).hold();
    const { fired } = await rule.counts();
    await until(async () => (await rule.counts()).fired > fired);
    await held.release();
  }
});

each("fake timers move the renewals", async ({ server, lock }) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const held = await lock({ renewMs: 10_000 }).hold();
    await server.clock.advance("9m59s");
    mock.timers.tick(9_999);
    assert.equal((await holder(server)).ttl, 1_000);
    mock.timers.tick(1);
    await renewed(server);
    assert.ok(await held.release());
  } finally {
    mock.timers.reset();
  }
});

each("a lease is renewed by hand", async ({ server, lock }) => {
  const { lost, onLost } = losses();
  const held = lock({ onLost });
  assert.equal(await held.renew(), false);
  await held.hold();
  await server.clock.advance("9m59s");
  assert.ok(await held.renew());
  assert.equal((await holder(server)).ttl, LEASE_MS);
  await server.clock.advance("10m");
  assert.equal(await held.renew(), false);
  assert.ok(!held.isHeld && held.signal.aborted);
  assert.equal(await held.renew(), false);
  assert.deepEqual(lost, [held]);
});

const LOSE = {
  lease: ({ clock }) => clock.advance("10m"),
  force: (server) => server.call("LOCK.FORCE", "lock"),
  // Another grant to the same owner is not this one.
  other: async (server, { owner }) => {
    await server.call("LOCK.FORCE", "lock");
    await server.call("LOCK.ACQUIRE", "lock", owner, "TTL", LEASE_MS);
  },
};
for (const [name, lose] of Object.entries(LOSE)) {
  each(`a loss is signalled: ${name}`, async ({ server, lock }) => {
    const { first, lost, onLost } = losses();
    const held = await lock({ renewMs: 1, onLost }).hold();
    const { signal, token } = held;
    const gate = await server.faults.gate({ command: "lock.renew" });
    await gate.wait();
    await lose(server, held);
    await gate.open();
    await first;
    assert.deepEqual(lost, [held]);
    assert.ok(signal.aborted && signal.reason instanceof LockLost);
    assert.ok(held.token === token && !held.isHeld && !(await held.release()));
    await server.call("LOCK.FORCE", "lock");
    await held.hold();
    assert.ok(held.token > token && !held.signal.aborted);
  });
}

each("the function onLost may use the lock", async ({ server, lock }) => {
  let released;
  const held = lock({ onLost: (lost) => (released = lost.release()) });
  await held.hold();
  await server.call("LOCK.FORCE", "lock");
  assert.equal(await held.renew(), false);
  assert.equal(await released, false);
});

each("a lock of an unreachable server is lost with its lease", async ({ server, lock }) => {
  const { first, onLost } = losses();
  await lock({ ttlMs: 300, renewMs: 1, onLost }).hold();
  const { client } = await holder(server);
  await server.faults.add("refuse");
  await server.faults.add("close", { clientId: client });
  await first;
  await server.faults.clear();
  assert.notEqual(await info(server), null, "the clock of the server has moved");
});

each("a lock that is not renewed is lost by the clock", async ({ server, lock }) => {
  for (const options of [{ ttlMs: 500 }, { bound: true, graceMs: 500 }]) {
    const { first, onLost } = losses();
    const held = await lock({ renewMs: 0, ...options, onLost }).hold();
    await first;
    assert.ok(!held.isHeld && held.signal.aborted);
    assert.notEqual(await info(server), null, "the clock of the server has moved");
    await server.call("LOCK.FORCE", held.key);
  }
});

// Shows L17, L18.
each("a lock counts from when its request was sent", async ({ server, lock }) => {
  const now = performance.now.bind(performance);
  let passedMs = 0;
  const clock = mock.method(performance, "now", () => now() + passedMs);
  try {
    const held = await lock().hold();
    const gate = await server.faults.gate({ command: "lock.renew" });
    const renewal = held.renew();
    await gate.wait();
    passedMs = LEASE_MS * 0.5;
    await gate.open();
    assert.ok(await renewal);
    passedMs = LEASE_MS * 0.9;
    assert.ok(held.isHeld);
    passedMs = LEASE_MS * 0.96; // The clock of the server may be faster by a twentieth.
    assert.ok(!held.isHeld);
  } finally {
    clock.mock.restore();
  }
});

each("a lock of a silent server is lost with its lease", async ({ server, lock }) => {
  const { first, onLost } = losses();
  const held = await lock({ ttlMs: 300, renewMs: 1, onLost }).hold();
  await server.faults.add("drop"); // Also what a new connection sends first.
  await first;
  await server.faults.clear();
  assert.ok(!held.isHeld);
});

const FAILURES = { close: [], "lose-and-close": [], error: ["ERR not now"] };
for (const [failure, argument] of Object.entries(FAILURES)) {
  each(`a failed renewal is tried again: ${failure}`, async ({ server, lock }) => {
    const { lost, onLost } = losses();
    const held = await lock({ renewMs: 1, onLost }).hold();
    const conditions = { command: "lock.renew", times: 3 };
    const rule = await server.faults.add(failure, ...argument, conditions);
    await until(async () => (await rule.counts()).fired === 3);
    await server.clock.advance("9m59s");
    await renewed(server);
    assert.deepEqual(lost, []);
    assert.ok(await held.release());
  });
}

each("a bound lock survives its connection", async ({ server, lock }) => {
  const held = await lock({ bound: true, graceMs: 60_000, renewMs: 1 }).hold();
  const first = (await holder(server)).client;
  await server.call("CLIENT", "KILL", "ID", first);
  await until(async () => ![0, first].includes((await holder(server)).client));
  await server.clock.advance("9m59s");
  assert.equal((await holder(server)).owner, held.owner);
  assert.ok(await held.release());
});

for (const [library, connect] of Object.entries(LIBRARIES)) {
  test(`a lock is held over a Unix socket (${library})`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "lockwheel-locks-"));
    t.after(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "socket");
    // Without a number of a port a server with a socket listens on no port.
    const given = ["--port", String(await freePort()), "--unixsocket", path];
    const { server } = await begin(t, connect, { options: given });
    const options = { ttlMs: LEASE_MS, bound: true, graceMs: 60_000, renewMs: 1 };
    const held = await new Lock(connect(`unix://${path}`, {}), "lock", options).hold();
    const first = (await holder(server)).client;
    await server.call("CLIENT", "KILL", "ID", first);
    await until(async () => ![0, first].includes((await holder(server)).client));
    assert.equal((await holder(server)).owner, held.owner);
    assert.ok(await held.release());
  });
}

each("a bound lock is released over a new connection", async ({ server, lock }) => {
  const held = await lock({ bound: true }).hold();
  await server.call("CLIENT", "KILL", "ID", (await holder(server)).client);
  assert.ok(await held.release());
  assert.equal(await info(server), null);
});

const HOLD = `
import Redis from "ioredis";
import { Lock } from "lockwheel/locks";

const client = new Redis(process.env.REDIS_URL);
await new Lock(client, "lock", { ttlMs: 600_000, bound: true, graceMs: 5_000 }).hold();
console.log("held");
process.stdin.on("end", () => process.exit()).resume();
`;
for (const end of ["kill", "exit"]) {
  test(`a bound lock ends with its process: ${end}`, async (t) => {
    const { server, lock } = await begin(t, LIBRARIES["ioredis 6"]);
    const command = ["--input-type=module", "--eval", HOLD];
    const env = { ...process.env, REDIS_URL: server.url };
    const child = spawn(process.execPath, command, { cwd: inside("."), env });
    t.after(() => child.kill("SIGKILL"));
    const [line] = await child.stdout.take(1).toArray();
    assert.equal(String(line), "held\n");
    const waiter = lock();
    const acquired = waiter.acquire({ waitMs: 60_000 });
    await until(async () => (await queue(server)).length === 1);
    if (end === "kill") child.kill("SIGKILL");
    else child.stdin.end();
    await until(async () => (await holder(server)).client === 0);
    await server.clock.advance("4s999ms");
    assert.deepEqual(await queue(server), [waiter.owner]);
    await server.clock.advance("1ms");
    assert.ok(await acquired);
  });
}

each("after a lost reply the lock is held once", async ({ server, lock }) => {
  const rule = await server.faults.add("lose-and-close", { command: "lock.acquire", nth: 1 });
  const held = lock();
  await assert.rejects(held.acquire(), /[Cc]losed/);
  assert.ok(!held.isHeld);
  assert.equal((await rule.counts()).matched, 1, "it was sent again");
  await held.hold();
  assert.equal((await holder(server)).count, 2);
  assert.ok(await held.release());
  assert.equal(await info(server), null);
});

/** Settings for numbers as text, which do not apply. */
const TEXT = {
  stringNumbers: true,
  commandOptions: { typeMapping: { [redis.RESP_TYPES.NUMBER]: String } },
};
for (const [library, connect] of Object.entries(LIBRARIES)) {
  test(`the settings of the client apply (${library})`, async (t) => {
    const { server, lock } = await begin(t, connect, { options: ["--requirepass", "secret"] });
    for (const protocol of [2, 3]) {
      const held = lock({}, "lock", { database: 3, name: "worker", protocol, ...TEXT });
      await held.hold();
      assert.equal(typeof held.token, "number");
      assert.equal(await server.call("DBSIZE"), 0);
      const [shown] = await server.journal.locks();
      assert.deepEqual([shown.database, shown.owner, shown.name], [3, held.owner, "worker"]);
      assert.equal(await lock({}, "lock", { database: 3, protocol }).acquire(), false);
      await held.release();
    }
  });
}

const PREFIXING = ["ioredis 6", "ioredis 5", "node-redis 6"];
const prefix = async ({ server, lock }) => {
  const held = await lock({}, "lock", { keyPrefix: "app:" }).hold();
  assert.equal((await holder(server, "app:lock")).owner, held.owner);
  assert.ok((await held.renew()) && (await held.release()));
};
each("the prefix of keys applies", prefix, PREFIXING);

test("other clients and options are refused", () => {
  const client = new Redis({ lazyConnect: true });
  const cluster = new Redis.Cluster([], { lazyConnect: true });
  const clients = [undefined, {}, cluster, redis.createCluster({ rootNodes: [] })];
  clients.push(redis.createClientPool(), redis4.createCluster({ rootNodes: [] }));
  clients.push(redis.createSentinel({ name: "main", sentinelRootNodes: [] }));
  for (const other of clients) {
    const supported = /a Redis of ioredis, which may have Sentinels, or .*node-redis's createClient$/;
    assert.throws(() => new Lock(other, "lock", { ttlMs: 1 }), supported);
  }
  const sentinels = [{ host: "127.0.0.1", port: 1 }];
  const slave = new Redis({ sentinels, name: "main", role: "slave", lazyConnect: true });
  assert.throws(() => new Lock(slave, "lock", { ttlMs: 1 }), /expected .* role master, .* a slave/);
  for (const options of [undefined, {}, { ttlMs: "30s" }]) {
    assert.throws(() => new Lock(client, "lock", options), /ttlMs: expected/);
  }
  assert.throws(() => new Lock(client, "lock", { ttlMs: 1, ttl: 1 }), /unknown option 'ttl'/);
  const both = { ttlMs: 1, shared: true, permits: [1, 2] };
  assert.throws(() => new Lock(client, "lock", both), /shared or has permits/);
});

test("require gives the same class", () => {
  const locks = createRequire(import.meta.url)("lockwheel/locks");
  assert.equal(locks.Lock, Lock);
});

for (const [library, Type] of Object.entries({ "ioredis 6": Redis, "ioredis 5": Redis5 })) {
  test(`a client of a sentinel takes the lock of the master (${library})`, async (t) => {
    const masters = [await start({ frozen: true }), await start({ frozen: true })];
    const folder = mkdtempSync(join(tmpdir(), "lockwheel-locks-"));
    const file = join(folder, "sentinel.conf");
    writeFileSync(file, `sentinel monitor mymaster 127.0.0.1 ${masters[0].port} 1\n`);
    const sentinel = await start({ options: [file, "--sentinel"] });
    const sentinels = [{ host: "127.0.0.1", port: sentinel.port }];
    const client = new Type({ sentinels, name: "mymaster", lazyConnect: true });
    const lock = new Lock(client, "lock", { ttlMs: LEASE_MS, renewMs: 0 });
    t.after(async () => {
      await lock.release();
      for (const server of [...masters, sentinel]) await server.stop();
      rmSync(folder, { recursive: true });
    });
    await lock.hold();
    assert.equal((await holder(masters[0])).owner, lock.owner);
    await sentinel.call("SENTINEL", "REMOVE", "mymaster");
    await sentinel.call("SENTINEL", "MONITOR", "mymaster", "127.0.0.1", masters[1].port, 1);
    assert.ok(await lock.renew());
    await masters[0].call("CLIENT", "KILL", "TYPE", "normal");
    // The new master has granted nothing.
    assert.ok(!(await lock.renew()) && !lock.isHeld);
    await lock.hold();
    assert.equal((await holder(masters[1])).owner, lock.owner);
  });
}

/** Whether a server accepts connections to the socket, whose file exists before it does. */
function accepts(path) {
  return new Promise((resolve) => {
    const connection = createConnection(path, () => resolve(true));
    connection.on("error", () => resolve(false));
    connection.on("connect", () => connection.destroy());
  });
}

/** The URL of a server without native locks. */
async function plainRedis(t) {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-locks-"));
  const path = join(folder, "socket");
  const options = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", folder];
  const child = spawn("redis-server", options, { stdio: "ignore" });
  t.after(async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill();
    await ended;
    rmSync(folder, { recursive: true });
  });
  await until(() => accepts(path));
  return `unix://${path}`;
}

function hasRedis() {
  try {
    return execFileSync("redis-server", ["--version"]) !== null;
  } catch {
    return false;
  }
}

test("a server without native locks is a clear error", { skip: !hasRedis() }, async (t) => {
  const url = await plainRedis(t);
  for (const connect of Object.values(LIBRARIES)) {
    const lock = new Lock(connect(url, {}), "lock", { ttlMs: LEASE_MS });
    await assert.rejects(lock.acquire(), (error) => {
      assert.match(error.message, /it must be Lockwheel 0.1 or later/);
      return error instanceof NoNativeLocks;
    });
    assert.ok(!lock.isHeld);
  }
});

each("other errors of the server are passed on", async ({ server, lock }) => {
  await server.call("SET", "lock", "value");
  await assert.rejects(lock().acquire(), /^\w*Error: WRONGTYPE/);
});

each("no connection stays behind", async ({ server, lock }) => {
  await lock().hold();
  const clients = async () => (await server.call("CLIENT", "LIST")).match(/id=/g).length;
  const before = await clients();
  const held = lock({}, "another");
  for (let count = 0; count < 3; count += 1) {
    await held.hold();
    assert.ok((await held.release()) && !(await lock().acquire()));
  }
  await until(async () => (await clients()) === before);
});
