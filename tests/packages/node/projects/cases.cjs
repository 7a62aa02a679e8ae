// The tests that each framework runs with its own hooks, in two files at the same time.

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { serverBetween, start } = require("lockwheel");
const { createClient } = require("redis");

/** Sends the other file the port of this file's server, and waits for the port of the other's. */
async function meet(own, other, port) {
  const meeting = new Redis(process.env.MEETING_URL);
  await meeting.rpush(`from ${own}`, port);
  const [, received] = await meeting.blpop(`from ${other}`, 0);
  meeting.disconnect();
  return Number(received);
}

/** The tests of the file `own`, which runs beside the file `other`. */
exports.together = (own, other, { test, beforeEach, afterEach }) => {
  const check = ["no-lock-held", "released-only-by-owner"];
  const server = serverBetween(beforeEach, afterEach, { frozen: true, check });

  test("files that run in parallel have their own servers", async () => {
    const port = await meet(own, other, server.port);
    assert.notEqual(port, server.port);
    await server.call("SET", own, "token", "NX", "PX", 30_000);
    // Both have written now.
    await meet(own, other, server.port);
    assert.deepEqual(await server.call("KEYS", "*"), [own]);
    await server.clock.advance("30s");
  });

  test("each test has a new server with a stopped clock", async () => {
    assert.equal((await server.journal.entries({ key: own })).length, 0);
    assert.equal((await server.clock.now()).rate, 0);
    await server.call("SET", own, "token", "NX", "PX", 30_000);
    await server.call("DEL", own);
  });

  test("a test may start more", async () => {
    const another = await start();
    assert.notEqual(another.port, server.port);
    await another.stop();
  });
};

/** A file with one server for all tests. */
exports.shared = ({ test, before, after, beforeEach }) => {
  const server = serverBetween(before, after);
  beforeEach(() => server.reset());

  for (const time of [1, 2]) {
    test(`nothing is left of another test, ${time}`, async () => {
      assert.equal(await server.call("SET", "lock", "token", "NX"), "OK");
    });
  }
};

/** Whether this is answered, after many more turns of this process and the server than it takes. */
async function isAnswered(server, answer) {
  let answered = false;
  answer.then(
    () => (answered = true),
    () => {},
  );
  for (let turn = 0; turn < 100; turn += 1) await server.call("PING");
  return answered;
}

/**
 * The functions that work under the fake timers from `fake()` to `real()`. These are all that the
 * framework fakes by default; `answers` are the clients that get replies under them.
 */
exports.fakeTimers = ({ test, beforeEach, afterEach, fake, real, answers }) => {
  const server = serverBetween(beforeEach, afterEach, { frozen: true });

  test("fake timers keep nothing of this package waiting", async () => {
    fake();
    try {
      const another = await start({ frozen: true });
      await another.call("SET", "lock", "token", "NX", "PX", 30_000);
      const gate = await another.faults.gate({ command: "del" });
      const deleted = another.call("DEL", "lock");
      await gate.wait();
      await another.clock.advance("30s");
      await gate.open();
      assert.equal(await deleted, 0);
      await another.stop();
    } finally {
      real();
    }
  });

  test("which clients are answered under all fake timers", async () => {
    const connected = new Redis(server.url);
    const nodeRedis = await createClient({ url: server.url }).connect();
    await connected.ping();
    fake();
    const connecting = new Redis(server.url);
    try {
      const found = {
        connectedIoredis: await isAnswered(server, connected.ping()),
        connectingIoredis: await isAnswered(server, connecting.ping()),
        nodeRedis: await isAnswered(server, nodeRedis.ping()),
      };
      assert.deepEqual(found, { connectedIoredis: true, ...answers });
    } finally {
      real();
      connected.disconnect();
      connecting.disconnect();
      nodeRedis.destroy();
    }
  });
};

/** Tests that fail, since a lock is left over: by the check of the hook, and by an assertion. */
exports.leftover = ({ test, beforeEach, afterEach }) => {
  const options = { frozen: true };
  const checked = serverBetween(beforeEach, afterEach, { ...options, check: ["no-lock-held"] });
  const server = serverBetween(beforeEach, afterEach, options);

  test("leaves a lock", async () => {
    await checked.call("SET", "invoice", "token", "NX", "PX", 30_000);
  });

  test("asserts that no lock is left", async () => {
    await server.call("SET", "order", "token", "NX", "PX", 30_000);
    await server.journal.assertNoLockHeld();
  });
};
