// The journal and its assertions.

import assert from "node:assert/strict";
import { test } from "node:test";

import Redis from "ioredis";
import { start } from "lockwheel";

/** A server that ends with the test. */
async function started(t, options = {}) {
  const server = await start({ frozen: true, ...options });
  t.after(() => server.stop());
  return server;
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
};

for (const [assertion, breach] of Object.entries(BREACHES)) {
  test(`${assertion}: rejects with the entries of the lock`, async (t) => {
    const server = await started(t);
    const clients = [1, 2].map(() => new Redis(server.url));
    for (const client of clients) t.after(() => client.disconnect());
    await server.journal[assertion]();
    await breach(server, ...clients);
    await assert.rejects(server.journal[assertion](), (error) => {
      assert.ok(error instanceof assert.AssertionError);
      assert.match(error.message, /^[a-z-]+: .*'lock'/);
      assert.match(error.message, /\n {2}\+0 ms #\d+ client \d+: set.* lock a/);
      return true;
    });
  });
}

test("checks by name, and those of the options", async (t) => {
  const server = await started(t, { check: ["no-lock-held", "every-lock-has-a-lease"] });
  await server.check();
  await server.call("SETNX", "lock", "token");
  await assert.rejects(server.check(), /no-lock-held: /);
  await assert.rejects(server.journal.assert("every-lock-has-a-lease"), /has no lease/);
  await assert.rejects(server.journal.assert("no-such-check"), /unknown check/);
});
