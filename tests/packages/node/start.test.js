// The start, the address, the calls and the end of a server.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import Redis from "ioredis";
import { ReplyError, Server, start } from "lockwheel";

/** Starts a server that stops with the test. */
async function started(t, options) {
  const server = await start(options);
  t.after(() => server.stop());
  return server;
}

function connect(t, ...where) {
  const redis = new Redis(...where);
  t.after(() => redis.disconnect());
  return redis;
}

test("a client finds the server at its URL, and at its host and port", async (t) => {
  const server = await started(t);
  assert.equal(server.url, `redis://${server.host}:${server.port}`);
  assert.equal(await connect(t, server.url).ping(), "PONG");
  assert.equal(await connect(t, server.port, server.host).ping(), "PONG");
});

test("options are those of redis-server, and the URL has the password", async (t) => {
  const options = ["--requirepass", "se/cret", "--databases", 3];
  const server = await started(t, { options });
  assert.equal(server.url, `redis://:se%2Fcret@127.0.0.1:${server.port}`);
  assert.deepEqual(await connect(t, server.url).config("GET", "databases"), ["databases", "3"]);
  assert.equal(await server.call("PING"), "PONG");
});

test("an unknown option is refused, and those that are known are named", async () => {
  const known = "frozen, clockStart, lockKeys, ignoredLockKeys, options, check";
  const message = `unknown option 'port'. Known: ${known}`;
  const error = { name: "TypeError", message };
  await assert.rejects(start({ port: 6379 }), error);
  assert.throws(() => new Server({ port: 6379 }), error);
});

test("text is no array of patterns", async () => {
  for (const option of ["lockKeys", "ignoredLockKeys"]) {
    const message = `${option}: expected an array of patterns`;
    assert.throws(() => new Server({ [option]: "job:*" }), { name: "TypeError", message });
  }
});

test("clients reconnect after a restart on the same port", async (t) => {
  const server = await started(t, { frozen: true });
  const redis = connect(t, server.url);
  await redis.set("lock", "token");
  const { pid, url } = server;
  assert.equal(await server.restart(), server);
  assert.equal(server.url, url);
  assert.notEqual(server.pid, pid);
  assert.equal(await redis.get("lock"), null);
  assert.equal((await server.clock.now()).rate, 0);
  await server.stop();
  await server.restart();
  assert.equal(server.url, url);
});

test("a server that has not been started has no port to restart on", async () => {
  await assert.rejects(new Server().restart(), /the server has not been started/);
});

test("the environment does not set options", async (t) => {
  process.env.LOCKWHEEL_DATABASES = "3";
  t.after(() => delete process.env.LOCKWHEEL_DATABASES);
  const server = await started(t);
  assert.deepEqual(await server.call("CONFIG", "GET", "databases"), ["databases", "16"]);
});

test("the first option may be a configuration file", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-sentinel-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [master, file] = [await started(t), join(folder, "sentinel.conf")];
  writeFileSync(file, `sentinel monitor mymaster 127.0.0.1 ${master.port} 1\n`);
  const sentinel = await started(t, { options: [file, "--sentinel"] });
  const sentinels = [{ host: sentinel.host, port: sentinel.port }];
  const redis = connect(t, { sentinels, name: "mymaster" });
  await redis.set("lock", "token");
  assert.equal(await master.call("GET", "lock"), "token");
});

test("an option makes it a cluster of one node", async (t) => {
  const server = await started(t, { options: ["--cluster-enabled", "yes"] });
  const cluster = new Redis.Cluster([server.url]);
  t.after(() => cluster.disconnect());
  assert.equal(await cluster.set("lock", "token"), "OK");
});

test("a call returns the reply and rejects with error replies", async (t) => {
  const server = await started(t);
  assert.equal(await server.call("SET", "lock", "a token", "PX", 30_000), "OK");
  assert.equal(await server.call("EXISTS", "lock", "lock"), 2);
  assert.equal(await server.call("GET", Buffer.from("none")), null);
  assert.deepEqual(await server.call("MGET", "none", "lock"), [null, "a token"]);
  const long = "\u00e4".repeat(100_000);
  assert.equal(await server.call("ECHO", long), long);
  await assert.rejects(server.call("LPUSH", "lock", "x"), (error) => {
    return error instanceof ReplyError && error.message.startsWith("WRONGTYPE ");
  });
});

test("calls that are not awaited run concurrently", async (t) => {
  const server = await started(t);
  const waiting = server.call("BLPOP", "list", 0);
  const calls = Array.from({ length: 50 }, (_, number) => server.call("ECHO", number));
  assert.deepEqual((await Promise.all(calls)).map(Number), [...calls.keys()]);
  await server.call("RPUSH", "list", "value");
  assert.deepEqual(await waiting, ["list", "value"]);
});

test("servers are independent", async (t) => {
  const servers = await Promise.all([1, 2, 3, 4, 5].map(() => started(t)));
  assert.equal(new Set(servers.map(({ port }) => port)).size, 5);
  await servers[0].call("SET", "lock", "token");
  const held = await Promise.all(servers.map((server) => server.call("EXISTS", "lock")));
  assert.deepEqual(held, [1, 0, 0, 0, 0]);
});

test("stop may be called repeatedly, and start again after it", async () => {
  const server = await start();
  await server.call("SET", "lock", "token");
  await Promise.all([server.stop(), server.stop()]);
  await server.stop();
  assert.throws(() => server.url, /not running/);
  await assert.rejects(server.call("PING"), /not running/);
  await server.start();
  assert.equal(await server.call("EXISTS", "lock"), 0);
  await assert.rejects(server.start(), /is running/);
  await server.stop();
});

test("a stop rejects calls in progress", async () => {
  const server = await start();
  const waiting = assert.rejects(server.call("BLPOP", "list", 0), /BLPOP list 0: .*closed/);
  await server.call("PING");
  await server.stop();
  await waiting;
});

test("dispose stops the server", { skip: !Symbol.asyncDispose }, async () => {
  const server = await start();
  await server[Symbol.asyncDispose]();
  assert.throws(() => server.url, /not running/);
});

test("a failed start reports the output", async (t) => {
  const wrong = start({ options: ["--nonsense", "3"] });
  await assert.rejects(wrong, /the server ended with 1\n[^]*>>> '--nonsense "3"'/);
  const { port } = await started(t);
  await assert.rejects(start({ options: ["--port", port] }), /ended with 1\n[^]*in use/);
});

test("a start may be tried again after a failure", async () => {
  const server = new Server({ options: ["--nonsense", "3"] });
  await assert.rejects(server.start());
  await assert.rejects(server.start(), /nonsense/);
  await server.stop();
});
