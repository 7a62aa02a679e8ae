// Shared code of the tests: the program, free ports, and the requests to a running server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { createClient } from "redis";

import { group } from "../../report/node/report.mjs";

export const PROGRAM = process.env.REDIS_SERVER;

// The limit of every wait, much longer than any step takes.
const MAX_WAIT_MS = 20_000;

const COMPARE_AND_DELETE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/** Groups the behaviours of one launcher: `body(behaviour)` calls `behaviour(sentence, test)`. */
export function launcher(name, body) {
  const beside = import.meta.url;
  group({ name, packageName: name, beside, timeoutMs: MAX_WAIT_MS }, body);
}

/** A free port of 127.0.0.1. */
export async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  const { port } = listener.address();
  await new Promise((resolve) => listener.close(resolve));
  return port;
}

/** Acquires and releases a lock. Returns the server's process id. */
export async function use(port, options = {}) {
  const socket = { port, host: "127.0.0.1", reconnectStrategy: false };
  const client = createClient({ socket, ...options });
  // The rejection has the reason.
  client.on("error", () => {});
  await client.connect();
  try {
    const lease = { condition: "NX", expiration: { type: "PX", value: 30_000 } };
    assert.equal(await client.set("lock", "token", lease), "OK");
    assert.equal(await client.set("lock", "other", lease), null);
    assert.equal(await client.get("lock"), "token");
    const release = (token) => client.eval(COMPARE_AND_DELETE, { keys: ["lock"], arguments: [token] });
    assert.equal(await release("other"), 0);
    assert.equal(await release("token"), 1);
    return Number(/process_id:(\d+)/.exec(await client.info("server"))[1]);
  } finally {
    client.destroy();
  }
}

/** Waits until the process has ended; a zombie counts as ended. */
export async function gone(pid) {
  const end = Date.now() + MAX_WAIT_MS;
  while (isRunning(pid)) {
    assert.ok(Date.now() < end, `process ${pid} does not end`);
    await sleep(10);
  }
}

function isRunning(pid) {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").split(")").pop().startsWith(" Z");
  } catch {
    return false;
  }
}
