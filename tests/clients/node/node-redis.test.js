// Locks made by hand with node-redis: the recipes that people copy, in both protocols.

import assert from "node:assert/strict";
import {
  WatchError,
  createClient,
  createClientPool,
  createCluster,
  createSentinel,
  defineScript,
} from "redis";

import { library, skip, uniqueName } from "./behaviours.js";
import {
  MAX_WAIT_MS,
  ROUNDS,
  WORKERS,
  contend,
  eventually,
  leaseEnds,
  sleep,
  stillWaits,
  withinLease,
} from "./contention.js";
import { DELETE_IF_MINE, EXPIRE_IF_MINE } from "./scripts.js";
import { CLUSTER, MAIN, SCRIPT_FLUSH, SENTINEL, SENTINEL_MASTER, address } from "./servers.js";

const LONG_MS = 30_000;

const scripts = { freeIfMine: script(DELETE_IF_MINE), renewIfMine: script(EXPIRE_IF_MINE) };

/** A script of one key, in this client's own words. */
function script(source) {
  return defineScript({
    SCRIPT: source,
    NUMBER_OF_KEYS: 1,
    parseCommand(parser, key, ...values) {
      parser.pushKey(key);
      parser.push(...values.map(String));
    },
    transformReply: undefined,
  });
}

/** Whether `owner` got the lock. */
async function take(client, name, owner, lease = LONG_MS) {
  const options = { condition: "NX", expiration: { type: "PX", value: lease } };
  return (await client.set(name, String(owner), options)) === "OK";
}

/** Many workers visit a section under one lock. */
async function excludes(client, name) {
  const section = await contend(async (section, number) => {
    for (let round = 0; round < ROUNDS; round++) {
      while (!(await take(client, name, number))) await sleep(1);
      await section.visit();
      assert.equal(await client.freeIfMine(name, number), 1);
    }
  });
  assert.equal(section.count, WORKERS * ROUNDS);
}

/** Connects any kind of client, and ends it with the test. */
async function opened(t, client) {
  client.on("error", () => {});
  await client.connect();
  t.after(() => client.destroy());
  return client;
}

library("node-redis", "redis", (behaviour) => {
  for (const RESP of [2, 3]) {
    const connect = (t, url = MAIN) => opened(t, createClient({ url, RESP, scripts }));
    const pooled = (t, options, maximum = 100) => {
      const pool = { maximum, acquireTimeout: MAX_WAIT_MS };
      return opened(t, createClientPool({ url: MAIN, RESP, ...options }, pool));
    };
    const each = (sentence, test) => behaviour(`${sentence} (RESP${RESP})`, test);

    each("SET NX PX and compare-and-delete: one of many gets in", async (t) => {
      await excludes(await connect(t), uniqueName());
    });

    each("SET NX PX from a pool of connections: one of many gets in", async (t) => {
      await excludes(await pooled(t, { scripts }), uniqueName());
    });

    each("SET NX PX: refused before the end of the lease, granted after it", async (t) => {
      const [client, name] = [await connect(t), uniqueName()];
      const since = performance.now();
      assert.ok(await take(client, name, "first", 300));
      await leaseEnds(() => take(client, name, "second"), since, 300);
      assert.equal(await client.get(name), "second");
    });

    each("defineScript: a release by another or after the lease changes nothing", async (t) => {
      const [client, name] = [await connect(t), uniqueName()];
      assert.ok(await take(client, name, "first"));
      assert.equal(await client.freeIfMine(name, "other"), 0);
      assert.equal(await client.get(name), "first");
      assert.equal(await client.renewIfMine(name, "first", 50), 1);
      await eventually(() => take(client, name, "second"));
      assert.equal(await client.freeIfMine(name, "first"), 0);
      assert.equal(await client.freeIfMine(name, "second"), 1);
      assert.equal(await client.get(name), null);
    });

    each("defineScript: a renewed lease lasts, another client renews nothing", async (t) => {
      const [client, name] = [await connect(t), uniqueName()];
      const since = await withinLease(
        1_000,
        () => take(client, name, "first", 1_000),
        async () => (await client.renewIfMine(name, "first", 1_200)) === 1,
      );
      assert.equal(await client.renewIfMine(name, "other", 1), 0);
      await leaseEnds(() => take(client, name, "second"), since, 1_200);
    });

    each("defineScript: freed even after SCRIPT FLUSH", async (t) => {
      const [client, name] = [await connect(t, SCRIPT_FLUSH), uniqueName()];
      assert.ok(await take(client, name, "first"));
      assert.equal(await client.freeIfMine(name, "other"), 0);
      await client.scriptFlush();
      assert.equal(await client.freeIfMine(name, "first"), 1);
    });

    each("WATCH, MULTI, EXEC: no lock that changed hands is freed", async (t) => {
      const [client, other, name] = [await connect(t), await connect(t), uniqueName()];
      await client.set(name, "first");
      await client.watch(name);
      assert.equal(await client.get(name), "first");
      await other.set(name, "second");
      await assert.rejects(client.multi().del(name).exec(), WatchError);
      await client.watch(name);
      assert.equal(await client.get(name), "second");
      assert.deepEqual(await client.multi().del(name).exec(), [1]);
      assert.equal(await other.exists(name), 0);
    });

    each("WATCH: a lease that ends while it is watched breaks the transaction", async (t) => {
      const [client, other, name] = [await connect(t), await connect(t), uniqueName()];
      do {
        await take(client, name, "first", 100);
        await client.watch(name);
      } while ((await client.get(name)) === null);
      await eventually(async () => (await other.exists(name)) === 0);
      await assert.rejects(client.multi().set(name, "first again").exec(), WatchError);
      assert.equal(await other.get(name), null);
    });

    each("WATCH, GET, MULTI, SET, EXEC: no increment is lost without a lock", async (t) => {
      const pool = await pooled(t, {}, WORKERS);
      const name = uniqueName();
      await contend(async () => {
        for (let round = 0; round < ROUNDS; round++) {
          while (!(await pool.execute((client) => incremented(client, name)))) await sleep(1);
        }
      });
      assert.equal(await pool.get(name), String(WORKERS * ROUNDS));
    });

    each("PUBLISH at release: a subscribed waiter is woken and gets the lock", async (t) => {
      const [client, subscriber, name] = [await connect(t), await connect(t), uniqueName()];
      assert.ok(await take(client, name, "first"));
      let wake;
      const woken = new Promise((resolve) => (wake = resolve));
      await subscriber.subscribe(`${name}:free`, wake);
      assert.ok(await stillWaits(woken));
      assert.deepEqual(await client.multi().del(name).publish(`${name}:free`, "").exec(), [1, 1]);
      await woken;
      assert.ok(await take(client, name, "second"));
    });

    each("BLPOP: each token goes to one, never more are out than there are", async (t) => {
      const pool = await pooled(t, {}, WORKERS * 2);
      const [name, out] = [uniqueName(), new Set()];
      await pool.rPush(name, ["a", "b"]);
      await contend(async () => {
        for (let round = 0; round < ROUNDS; round++) {
          const { element } = await pool.blPop(name, MAX_WAIT_MS / 1000);
          assert.ok(!out.has(element), "a token was given twice");
          out.add(element);
          await sleep(2);
          out.delete(element);
          await pool.rPush(name, element);
        }
      });
      assert.deepEqual((await pool.lRange(name, 0, -1)).sort(), ["a", "b"]);
    });

    each("A killed connection is replaced, and its lock stays", async (t) => {
      const [client, other, name] = [await connect(t), await connect(t), uniqueName()];
      assert.ok(await take(client, name, "first"));
      const again = new Promise((resolve) => client.once("ready", resolve));
      await other.sendCommand(["CLIENT", "KILL", "ID", String(await client.clientId())]);
      await again;
      assert.ok(!(await take(client, name, "second")));
      assert.equal(await client.freeIfMine(name, "first"), 1);
    });
  }

  behaviour("SET NX PX on a cluster client: one of many gets in", async (t) => {
    if (!CLUSTER) skip("no cluster given");
    const cluster = createCluster({ rootNodes: [{ url: CLUSTER }], scripts });
    await excludes(await opened(t, cluster), uniqueName());
  });

  behaviour("SET NX PX on the master that a sentinel names: one of many gets in", async (t) => {
    if (!SENTINEL) skip("no sentinel given");
    const sentinelRootNodes = [address(SENTINEL)];
    const sentinel = createSentinel({ name: SENTINEL_MASTER, sentinelRootNodes, scripts });
    await excludes(await opened(t, sentinel), uniqueName());
  });
});

/** Increments the counter, unless another client changed it meanwhile. */
async function incremented(client, name) {
  await client.watch(name);
  const count = Number(await client.get(name));
  try {
    await client
      .multi()
      .set(name, String(count + 1))
      .exec();
  } catch (error) {
    if (error instanceof WatchError) return false;
    throw error;
  }
  return true;
}
