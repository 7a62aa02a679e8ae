// Fault rules, and gates that hold clients.

import assert from "node:assert/strict";
import { test } from "node:test";

import Redis from "ioredis";
import { start } from "lockwheel";

/** A server, and a client that stays disconnected once it is; both end with the test. */
async function serverAndClient(t) {
  const server = await start({ frozen: true });
  const redis = new Redis(server.url, { retryStrategy: null, connectionName: "worker-1" });
  redis.on("error", () => {});
  t.after(() => redis.disconnect());
  t.after(() => server.stop());
  await redis.ping();
  return [server, redis];
}

test("lose-and-close runs the request and closes the connection", async (t) => {
  const [server, redis] = await serverAndClient(t);
  const rule = await server.faults.add("lose-and-close", { command: "set", times: 1 });
  await assert.rejects(redis.set("lock", "token"), /Connection is closed/);
  assert.equal(await server.call("GET", "lock"), "token");
  assert.deepEqual(await rule.counts(), { matched: 1, fired: 1 });
});

test("close does not run the request", async (t) => {
  const [server, redis] = await serverAndClient(t);
  await server.faults.add("close", { client: "worker-?" });
  await assert.rejects(redis.set("lock", "token"), /Connection is closed/);
  assert.equal(await server.call("EXISTS", "lock"), 0);
});

test("an error is sent for the n-th request for a key", async (t) => {
  const [server, redis] = await serverAndClient(t);
  const line = "LOADING Redis is loading the dataset in memory";
  await server.faults.add("error", line, { key: "lock:*", nth: 2 });
  const outcomes = [];
  for (const key of ["lock:1", "other", "lock:2", "lock:3"]) {
    outcomes.push(await redis.set(key, "token").catch((error) => error.message));
  }
  assert.deepEqual(outcomes, ["OK", "OK", line, "OK"]);
});

test("a delay follows the server's clock", async (t) => {
  const [server, redis] = await serverAndClient(t);
  const clientId = await redis.client("ID");
  const rule = await server.faults.add("delay", "2s", { clientId });
  const late = redis.set("lock", "token");
  while ((await rule.counts()).fired === 0);
  assert.deepEqual((await server.faults.list())[0].held, [clientId]);
  await server.clock.advance("1s999ms");
  assert.equal(await server.call("EXISTS", "lock"), 0);
  await server.clock.advance("1ms");
  assert.equal(await late, "OK");
});

test("other actions: jump, cut, lose-writes, flush-scripts, drop", async (t) => {
  const [server, redis] = await serverAndClient(t);
  await server.faults.add("jump", "1h", { command: "set", nth: 1 });
  await server.faults.add("lose-writes", 1, { key: "forgotten" });
  await server.faults.add("flush-scripts", { command: "evalsha" });
  const sha = await redis.script("LOAD", "return 1");
  await redis.set("lock", "token", "PX", 30_000);
  await redis.set("forgotten", "token");
  await assert.rejects(redis.evalsha(sha, 0), /NOSCRIPT/);
  assert.equal(await server.call("DBSIZE"), 0);
  await server.faults.add("cut", 1, { command: "echo" });
  await assert.rejects(redis.echo("hello"), /Connection is closed/);
  const drop = await server.faults.add("drop", { command: "ping" });
  const neverAnswered = new Redis(server.url, { retryStrategy: null });
  const dropped = assert.rejects(neverAnswered.ping(), /Connection is closed/);
  while ((await drop.counts()).fired === 0);
  neverAnswered.disconnect();
  await dropped;
});

test("a stalled connection continues when the rule is cleared", async (t) => {
  const [server, redis] = await serverAndClient(t);
  const rule = await server.faults.add("stall", { client: "worker-?" });
  const pong = redis.ping();
  while ((await rule.counts()).fired === 0);
  await rule.clear();
  assert.equal(await pong, "PONG");
});

test("the same seed selects the same requests", async (t) => {
  const fates = await Promise.all(
    [1, 2].map(async () => {
      const [server] = await serverAndClient(t);
      await server.faults.add("error", "BUSY", { command: "echo", probability: 0.5, seed: 7 });
      const echo = (text) => server.call("ECHO", text).catch((error) => error.message);
      const answers = [];
      for (let number = 0; number < 40; number += 1) answers.push(await echo("fine"));
      return answers;
    }),
  );
  assert.deepEqual(fates[0], fates[1]);
  assert.deepEqual([...new Set(fates[0])].sort(), ["BUSY", "fine"]);
});

test("connections are refused until the rule is cleared", async (t) => {
  const [server] = await serverAndClient(t);
  const rule = await server.faults.add("refuse");
  const redis = new Redis(server.url, { retryStrategy: null });
  redis.on("error", () => {});
  await assert.rejects(redis.ping(), /Connection is closed/);
  await rule.clear();
  await assert.rejects(rule.counts(), /has been cleared/);
  assert.equal(await server.call("PING"), "PONG");
});

test("a gate holds a client, and other clients continue", async (t) => {
  const [server, redis] = await serverAndClient(t);
  const gate = await server.faults.gate({ command: "del", key: "lock" });
  await redis.set("lock", "token");
  const deleted = redis.del("lock");
  assert.equal(await gate.wait(), Number(/id=(\d+)[^\n]*name=worker-1/.exec(await clients())[1]));
  assert.equal((await server.faults.gates())[0].held.length, 1);
  assert.equal(await server.call("GET", "lock"), "token");
  assert.equal(await gate.open(), 1);
  assert.equal(await deleted, 1);

  function clients() {
    return server.call("CLIENT", "LIST");
  }
});

test("a held call does not prevent opening the gate", async (t) => {
  const [server] = await serverAndClient(t);
  const gate = await server.faults.gate();
  const held = server.call("PING");
  await gate.wait();
  await gate.open();
  assert.equal(await held, "PONG");
});

test("a failover undoes the last writes and disconnects all other clients", async (t) => {
  const [server, redis] = await serverAndClient(t);
  await redis.set("first", "1");
  await server.call("SET", "last", "2");
  const gone = new Promise((resolve) => redis.once("end", resolve));
  assert.equal(await server.faults.failover({ lose: 1 }), 1);
  await gone;
  assert.deepEqual(await server.call("KEYS", "*"), ["first"]);
  assert.equal(await server.faults.failover(), 0);
});

test("an unknown condition is refused", async (t) => {
  const [server] = await serverAndClient(t);
  await assert.rejects(server.faults.gate({ comand: "del" }), /unknown condition comand/);
  await assert.rejects(server.faults.add("break"), /ERR /);
});
