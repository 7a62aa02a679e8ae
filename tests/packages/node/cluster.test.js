// Lock objects on a cluster of three nodes, over each supported version of ioredis; and clients of
// one of its nodes.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";

import Redis from "ioredis";
import Redis5 from "ioredis5";
import { Lock } from "lockwheel/locks";
import { createClient } from "redis";

import { inside } from "./frameworks.js";

/** A lease that does not end by the clock of a process, however slow it is. */
const LEASE_MS = 600_000;
const SYSTEM = `${process.platform}-${process.arch}`;
const CARRIED = createRequire(import.meta.url).resolve(`@lockwheel/${SYSTEM}/package.json`);
const PROGRAM = join(dirname(CARRIED), "bin", "lockwheel");
const USER = "--requirepass secret --user worker on >word ~* &* +@all".split(" ");

/** Starts a cluster, with TLS and the user of the tests or without both. It ends with the test. */
async function begin(t, Type, isSecure) {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-cluster-"));
  const certificate = join(folder, "certificate");
  const script = spawn(process.env.CLUSTER, [PROGRAM, ...(isSecure ? USER : [])], {
    env: { ...process.env, ...(isSecure && { TLS: certificate }) },
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(async () => {
    const ended = once(script, "exit");
    script.stdin.end();
    await ended;
    rmSync(folder, { recursive: true });
  });
  const lines = createInterface({ input: script.stdout })[Symbol.asyncIterator]();
  const processes = new Map();
  while (processes.size < 3) {
    const { value, done } = await lines.next();
    assert.ok(!done, "the cluster does not start");
    const [port, process] = value.split(" ").map(Number);
    processes.set(port, process);
  }
  const sentinels = [...processes.keys()].map((port) => ({ host: "127.0.0.1", port }));
  const options = { name: "mymaster", lazyConnect: true };
  if (isSecure) {
    const tls = { ca: readFileSync(certificate), servername: "localhost" };
    Object.assign(options, { tls, sentinelTLS: tls, enableTLSForSentinelMode: true });
    Object.assign(options, { username: "worker", password: "word", db: 3 });
    Object.assign(options, { sentinelUsername: "worker", sentinelPassword: "word" });
  }
  /** The port of the node that leads. */
  const leader = async () => {
    const client = new Type({ ...options, sentinels });
    const [, port] = await client.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster");
    client.disconnect();
    return Number(port);
  };
  const first = await leader();
  // The leader is asked first, which is the worst order if it is stopped.
  sentinels.sort((one, another) => (another.port === first) - (one.port === first));
  const lock = (all) => new Lock(new Type({ ...options, sentinels }), "lock", all);
  return { lock, leader: processes.get(first), port: first, processes };
}

/** How often a connection is attempted, each time for a second. */
const ATTEMPTS_MAX = 120;

/** Tries again when a connection takes longer than the second that it may, on a busy machine. */
async function connected(attempt) {
  for (let number = 1; ; number += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (error.code !== "ETIMEDOUT" || number === ATTEMPTS_MAX) throw error;
    }
  }
}

/** Ends the leader with a signal while a lock is held. */
async function outlives({ lock, leader }, signal, ttlMs) {
  const options = { ttlMs, renewMs: 50 };
  const held = await connected(() => lock(options).hold());
  process.kill(leader, signal);
  while (!(await held.renew().catch(() => false))) assert.ok(held.isHeld, "it was lost");
  const other = lock(options);
  assert.ok(!(await connected(() => other.acquire())));
  assert.ok(await held.release());
  assert.ok((await connected(() => other.acquire())) && other.token > held.token);
  assert.ok(await other.release());
}

describe("on a cluster", { concurrency: true }, () => {
  for (const [library, Type] of Object.entries({ "ioredis 6": Redis, "ioredis 5": Redis5 })) {
    test(`a lock outlives a leader that is killed (${library})`, async (t) => {
      await outlives(await begin(t, Type, false), "SIGKILL", LEASE_MS);
    });

    test(`a lock outlives a leader that is stopped (${library})`, async (t) => {
      // A renewal waits for a third of the lease for a server that is stopped.
      await outlives(await begin(t, Type, true), "SIGSTOP", 12_000);
    });
  }

  const ADDRESS = {
    ioredis: (port) => new Redis({ port, lazyConnect: true }),
    "node-redis": (port) => createClient({ url: `redis://127.0.0.1:${port}` }),
  };
  for (const [library, connect] of Object.entries(ADDRESS)) {
    // Shows L17, L18.
    test(`a lock of one address is lost before another is granted (${library})`, async (t) => {
      const { lock, leader, port } = await begin(t, Redis, false);
      const held = new Lock(connect(port), "lock", { ttlMs: 6_000, renewMs: 50 });
      await held.hold();
      process.kill(leader, "SIGKILL");
      await assert.rejects(held.renew());
      const other = lock({ ttlMs: LEASE_MS, waitMs: 60_000 });
      while (!(await other.acquire().catch(() => false)));
      assert.ok(!held.isHeld && held.signal.aborted && other.token > held.token);
      assert.ok(!(await held.renew()) && (await other.release()));
    });
  }

  test("the example of the README survives a failover", async (t) => {
    const readme = readFileSync(inside("node_modules/lockwheel/README.md"), "utf8");
    const blocks = [...readme.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code);
    let example = blocks.find((code) => code.includes("10.0.0.1"));
    const { leader, processes } = await begin(t, Redis, false);
    for (const [index, port] of [...processes.keys()].entries()) {
      const address = `host: "10.0.0.${index + 1}", port: 6379`;
      assert.ok(example.includes(address));
      example = example.replace(address, `host: "127.0.0.1", port: ${port}`);
    }
    writeFileSync(inside("example-of-a-cluster.js"), `${example}\nexport { lock };\n`);
    const { lock } = await import("./example-of-a-cluster.js");
    await lock.hold();
    process.kill(leader, "SIGKILL");
    while (!(await lock.renew().catch(() => false))) assert.ok(lock.isHeld, "it was lost");
    assert.ok(await lock.release());
  });

  // Shows L17, L18.
  test("a bound lock of a stopped cluster is lost with its grace", async (t) => {
    const { lock, processes } = await begin(t, Redis, false);
    const held = await lock({ ttlMs: LEASE_MS, bound: true, graceMs: 2_000 }).hold();
    const lost = once(held.signal, "abort");
    for (const node of processes.values()) process.kill(node, "SIGSTOP");
    await lost;
    assert.ok(!held.isHeld);
  });
});
