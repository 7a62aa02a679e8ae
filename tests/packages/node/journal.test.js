// The journal and its assertions.

import assert from "node:assert/strict";
import { test } from "node:test";

import Redis from "ioredis";
import { CheckError, start } from "lockwheel";

/** A server that ends with the test. */
async function started(t, options = {}) {
  const server = await start({ frozen: true, ...options });
  t.after(() => server.stop());
  return server;
}

/** Parts of a server, which may be used without it. */
function bound(server) {
  const { faults, journal } = server;
  return { call: (...words) => server.call(...words), faults, journal };
}

const events = (entries) => entries.map(({ event }) => event);

test("entries: all, about a key, after another, the last", async (t) => {
  const server = await started(t);
  const { journal } = server;
  await server.call("SET", "lock", "token", "NX", "PX", 30_000);
  await server.call("SET", "other", "token");
  await server.call("DEL", "lock");
  const about = await journal.entries({ key: "lock" });
  assert.deepEqual(events(about), ["command", "acquired", "command", "released"]);
  assert.equal(about[1].owner, "token");
  assert.equal(about[1].lease_ms, 30_000);
  const since = await journal.entries({ key: "lock", since: about[1].seq });
  assert.deepEqual(since, about.slice(2));
  assert.deepEqual(await journal.entries({ key: "lock", count: 1 }), about.slice(3));
  assert.match(await journal.story({ key: "lock", count: 1 }), /^ {2}\+0 ms #\d+ .*\n$/);
  assert.ok((await journal.entries()).some(({ keys }) => keys.includes("other")));
  await journal.clear();
  assert.deepEqual(await journal.entries({ key: "lock" }), []);
});

test("locks that are held", async (t) => {
  const server = await started(t);
  const { clock, journal } = server;
  await server.call("SET", "lock", "token", "NX", "PX", 30_000);
  await clock.advance("1s");
  const [lock] = await journal.locks();
  assert.equal(lock.key, "lock");
  assert.equal(lock.owner, "token");
  assert.equal(lock.lease_ms, 29_000);
});

test("mistakes that were made", async (t) => {
  const server = await started(t);
  const { journal } = server;
  await server.call("SETNX", "lock", "token");
  await server.call("DEL", "lock");
  const findings = await journal.lint();
  assert.deepEqual(
    findings.map(({ rule }) => rule),
    ["lock-without-lease", "delete-without-check"],
  );
  assert.match(findings[0].sentence, /'lock' has no lease/);
});

const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end";

const take = (redis, token) => redis.set("lock", token, "PX", 30_000, "NX");

// Tokens that others may use too are not compared.
const UNIQUE = "2f1c7a9-58f4-4a6e-9d54-0f0e9f3c8a11";

/** How each check is broken by one or two clients. */
const BREACHES = {
  assertNoLockHeld: (server, a) => take(a, "a"),
  assertEveryLockHasALease: (server, a) => a.setnx("lock", "a"),
  assertReleasedOnlyByOwner: async (server, a, b) => {
    await take(a, "a");
    await b.del("lock");
  },
  assertNeverTwoHolders: async (server, a, b) => {
    await take(a, "a");
    await server.clock.advance("30s");
    await take(b, "b");
    await a.eval(RELEASE, 1, "lock", "a");
  },
  assertNotRefusedByOwnToken: async (server, a) => {
    await take(a, `a${UNIQUE}`);
    await take(a, `a${UNIQUE}`);
  },
  assertNoWaiterLost: async (server, a, b) => {
    await take(a, "a");
    await take(b, "b");
    await a.del("lock");
  },
  assertRenewedBeforeExpiry: async (server, a) => {
    await take(a, "a");
    await server.clock.advance("30s");
  },
};

/** How correct use keeps a check. */
const KEPT = {
  assertNotRefusedByOwnToken: async (server, a, b) => {
    await take(a, `a${UNIQUE}`);
    await take(b, `b${UNIQUE}`);
  },
  assertNoWaiterLost: async (server, a, b) => {
    await BREACHES.assertNoWaiterLost(server, a, b);
    await take(b, "b");
  },
  assertRenewedBeforeExpiry: async (server, a) => {
    await take(a, "a");
    for (let renewed = 0; renewed < 2; renewed += 1) {
      await server.clock.advance("20s");
      await a.pexpire("lock", 30_000);
    }
  },
};

/** A server and two clients of it, which end with the test. */
async function startedWithClients(t) {
  const server = await started(t);
  const clients = [1, 2].map(() => new Redis(server.url));
  for (const client of clients) t.after(() => client.disconnect());
  return [server, ...clients];
}

for (const [assertion, use] of Object.entries(KEPT)) {
  test(`${assertion}: resolves after correct use`, async (t) => {
    const [server, ...clients] = await startedWithClients(t);
    await use(server, ...clients);
    await server.journal[assertion]();
  });
}

for (const [assertion, breach] of Object.entries(BREACHES)) {
  test(`${assertion}: rejects with the entries of the lock`, async (t) => {
    const [server, ...clients] = await startedWithClients(t);
    await server.journal[assertion]();
    await breach(server, ...clients);
    await assert.rejects(server.journal[assertion](), (error) => {
      assert.ok(error instanceof CheckError);
      assert.match(error.message, /^[a-z-]+: .*'lock'/);
      assert.match(error.message, /\n {2}\+0 ms #\d+ client \d+ \(ioredis\): set.* lock a/);
      assert.equal(error.message.match(/^=> *\+\d+ ms #\d+ .*'lock'/gm)?.length, 1);
      return true;
    });
  });
}

test("a check of a key, of a client, and of what came after an entry", async (t) => {
  const server = await started(t);
  const { journal } = server;
  const worker = new Redis(server.url, { connectionName: "worker" });
  t.after(() => worker.disconnect());
  await take(worker, "a");
  const client = await worker.client("ID");
  const [{ seq }] = await journal.entries({ key: "lock", count: 1 });
  for (const scope of [{ key: "l*" }, { client }, { client: "worker" }, { since: seq - 1 }]) {
    await assert.rejects(journal.assertNoLockHeld(scope), CheckError, JSON.stringify(scope));
  }
  const others = [{ key: "job:*" }, { client: client + 100 }, { client: "other" }, { since: seq }];
  for (const scope of others) await journal.assertNoLockHeld(scope);
});

test("a key that is only possibly a lock fails a check that names it", async (t) => {
  const { call, journal } = bound(await started(t));
  await call("SET", "idem:1", "done", "NX", "EX", 3600);
  await journal.assertNoLockHeld();
  const check = journal.assertNoLockHeld({ key: "idem:*" });
  await assert.rejects(check, /client \d+ holds the lock 'idem:1' as 'done'/);
  const [{ key, shape, confidence, held }] = await journal.knownLocks();
  const expected = { key: "idem:1", shape: "token", confidence: "possible", held: true };
  assert.deepEqual({ key, shape, confidence, held }, expected);
});

test("keys that are declared as locks, and keys that are none", async (t) => {
  const token = "2f1c7a90-58f4-4a6e-9d54-0f0e9f3c8a11";
  const heldKeys = async ({ call, journal }) => {
    await call("FLUSHALL");
    await call("SET", "job:1", "1", "NX", "PX", 30_000);
    await call("SET", "tmp:1", token, "NX", "PX", 30_000);
    const held = (await journal.locks()).filter(({ confidence }) => confidence !== "possible");
    return held.map(({ key }) => key);
  };
  const plain = bound(await started(t));
  assert.deepEqual(await heldKeys(plain), ["tmp:1"]);
  await plain.journal.declareLocks("job:*");
  await plain.journal.ignoreLocks("tmp:*");
  assert.deepEqual(await heldKeys(plain), ["job:1"]);

  const server = await started(t, { lockKeys: ["cron:*", "job:*"], ignoredLockKeys: ["tmp:*"] });
  assert.deepEqual(await heldKeys(bound(server)), ["job:1"]);
  await server.reset();
  assert.deepEqual(await heldKeys(bound(server)), ["job:1"]);
  await server.restart();
  assert.deepEqual(await heldKeys(bound(server)), ["job:1"]);
});

test("a story shows that a reply was lost", async (t) => {
  const { call, faults, journal } = bound(await started(t));
  await faults.add("lose-and-close", { command: "set" });
  await assert.rejects(call("SET", "lock", "token", "NX", "PX", 30_000));
  const story = await journal.story({ key: "lock" });
  const outcome = "OK [fault 1: executed; reply lost; connection closed]";
  assert.ok(story.includes(`SET lock token NX PX 30000 -> ${outcome}\n`), story);
  assert.match(story, /client \d+: acquired 'lock' as 'token' for 30000 ms\n/);
});

test("unknown parts of a scope are refused", async (t) => {
  const { journal } = await started(t);
  await assert.rejects(async () => journal.assertNoLockHeld({ keys: "lock" }), {
    name: "TypeError",
    message: "unknown option 'keys'. Known: key, client, since, count",
  });
});

test("checks by name, and those of the options", async (t) => {
  const server = await started(t, { check: ["no-lock-held", "every-lock-has-a-lease"] });
  await server.check();
  await server.call("SETNX", "lock", "token");
  await assert.rejects(server.check(), /no-lock-held: /);
  await assert.rejects(server.journal.assert("every-lock-has-a-lease"), /has no lease/);
  await assert.rejects(server.journal.assert("no-lock-helt"), (error) => {
    const known = ["never-two-holders", "no-waiter-lost", "renewed-before-expiry"];
    assert.match(error.message, /unknown check 'no-lock-helt'; did you mean no-lock-held\?/);
    assert.ok(known.every((name) => error.message.includes(name)));
    return true;
  });
});
