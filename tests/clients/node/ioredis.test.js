// Locks made by hand with ioredis: the recipes that people copy, in both protocols.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import Redis, { Cluster } from "ioredis";

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
import {
  CLUSTER,
  MAIN,
  SCRIPT_FLUSH,
  SENTINEL,
  SENTINEL_MASTER,
  TLS,
  TLS_CA,
  address,
} from "./servers.js";

const SCRIPTS = {
  freeIfMine: { numberOfKeys: 1, lua: DELETE_IF_MINE },
  renewIfMine: { numberOfKeys: 1, lua: EXPIRE_IF_MINE },
};

const LONG_MS = 30_000;

/** Whether `owner` got the lock. */
async function take(client, name, owner, lease = LONG_MS) {
  return (await client.set(name, owner, "PX", lease, "NX")) === "OK";
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

library("ioredis", "ioredis", (behaviour) => {
  for (const protocol of [2, 3]) {
    const connect = (t, options = {}, url = MAIN) => {
      const client = new Redis(url, { protocol, scripts: SCRIPTS, ...options });
      t.after(() => client.disconnect());
      return client;
    };
    const each = (sentence, test) => behaviour(`${sentence} (RESP${protocol})`, test);

    each("SET NX PX and compare-and-delete: one of many gets in", async (t) => {
      await excludes(connect(t), uniqueName());
    });

    each("SET NX PX with automatic pipelines: one of many gets in", async (t) => {
      await excludes(connect(t, { enableAutoPipelining: true }), uniqueName());
    });

    each("SET NX PX: refused before the end of the lease, granted after it", async (t) => {
      const [client, name, since] = [connect(t), uniqueName(), performance.now()];
      assert.ok(await take(client, name, "first", 300));
      await leaseEnds(() => take(client, name, "second"), since, 300);
      assert.equal(await client.get(name), "second");
    });

    each("defineCommand: a release by another or after the lease changes nothing", async (t) => {
      const [client, name] = [connect(t), uniqueName()];
      assert.ok(await take(client, name, "first"));
      assert.equal(await client.freeIfMine(name, "other"), 0);
      assert.equal(await client.get(name), "first");
      assert.equal(await client.renewIfMine(name, "first", 50), 1);
      await eventually(() => take(client, name, "second"));
      assert.equal(await client.freeIfMine(name, "first"), 0);
      assert.equal(await client.freeIfMine(name, "second"), 1);
      assert.equal(await client.get(name), null);
    });

    each("defineCommand: a renewed lease lasts, another client renews nothing", async (t) => {
      const [client, name] = [connect(t), uniqueName()];
      const since = await withinLease(
        1_000,
        () => take(client, name, "first", 1_000),
        async () => (await client.renewIfMine(name, "first", 1_200)) === 1,
      );
      assert.equal(await client.renewIfMine(name, "other", 1), 0);
      await leaseEnds(() => take(client, name, "second"), since, 1_200);
    });

    each("defineCommand: freed even after SCRIPT FLUSH", async (t) => {
      const [client, name] = [connect(t, {}, SCRIPT_FLUSH), uniqueName()];
      assert.ok(await take(client, name, "first"));
      assert.equal(await client.freeIfMine(name, "other"), 0);
      await client.script("FLUSH");
      assert.equal(await client.freeIfMine(name, "first"), 1);
    });

    each("WATCH, MULTI, EXEC: no lock that changed hands is freed", async (t) => {
      const [client, other, name] = [connect(t), connect(t), uniqueName()];
      await client.set(name, "first");
      await client.watch(name);
      assert.equal(await client.get(name), "first");
      await other.set(name, "second");
      assert.equal(await client.multi().del(name).exec(), null);
      await client.watch(name);
      assert.equal(await client.get(name), "second");
      assert.deepEqual(await client.multi().del(name).exec(), [[null, 1]]);
      assert.equal(await other.exists(name), 0);
    });

    each("WATCH: a lease that ends while it is watched breaks the transaction", async (t) => {
      const [client, other, name] = [connect(t), connect(t), uniqueName()];
      do {
        await take(client, name, "first", 100);
        await client.watch(name);
      } while ((await client.get(name)) === null);
      await eventually(async () => (await other.exists(name)) === 0);
      assert.equal(await client.multi().set(name, "first again").exec(), null);
      assert.equal(await other.get(name), null);
    });

    const wakes = async (client, subscriber) => {
      const name = uniqueName();
      assert.ok(await take(client, name, "first"));
      await subscriber.subscribe(`${name}:free`);
      const woken = new Promise((resolve) => subscriber.once("message", resolve));
      assert.ok(await stillWaits(woken));
      const freed = await client.multi().del(name).publish(`${name}:free`, "free").exec();
      assert.deepEqual(freed, [
        [null, 1],
        [null, 1],
      ]);
      await woken;
      assert.ok(await take(client, name, "second"));
    };

    each("PUBLISH at release: a subscribed waiter is woken and gets the lock", async (t) => {
      await wakes(connect(t), connect(t));
    });

    each("TLS: a subscribed waiter is woken and gets the lock", async (t) => {
      if (!TLS) skip("no port for TLS given");
      const options = { tls: { ca: readFileSync(TLS_CA) } };
      await wakes(connect(t, options, TLS), connect(t, options, TLS));
    });

    each("BLPOP: waiters are woken in the order in which they came", async (t) => {
      const [client, name, order] = [connect(t), uniqueName(), []];
      const waiters = [];
      for (let number = 0; number < 4; number++) {
        const waiter = connect(t, { connectionName: `${name}-${number}` });
        await waiter.ping();
        waiters.push(waiter.blpop(name, MAX_WAIT_MS / 1000).then(() => order.push(number)));
        await eventually(async () => blocked(await client.client("LIST"), `${name}-${number}`));
      }
      for (let number = 0; number < 4; number++) {
        await client.rpush(name, "go");
        await waiters[number];
      }
      assert.deepEqual(order, [0, 1, 2, 3]);
    });

    each("A killed connection is replaced, and its lock stays", async (t) => {
      const [client, other, name] = [connect(t), connect(t), uniqueName()];
      assert.ok(await take(client, name, "first"));
      await other.client("KILL", "ID", await client.client("ID"));
      assert.ok(!(await take(client, name, "second")));
      assert.equal(await client.freeIfMine(name, "first"), 1);
    });
  }

  behaviour("SET NX PX on a cluster client: one of many gets in", async (t) => {
    if (!CLUSTER) skip("no cluster given");
    const cluster = new Cluster([CLUSTER], { scripts: SCRIPTS });
    t.after(() => cluster.disconnect());
    await excludes(cluster, uniqueName());
  });

  behaviour("SET NX PX on the master that a sentinel names: one of many gets in", async (t) => {
    if (!SENTINEL) skip("no sentinel given");
    const sentinels = [address(SENTINEL)];
    const client = new Redis({ sentinels, name: SENTINEL_MASTER, scripts: SCRIPTS });
    t.after(() => client.disconnect());
    await excludes(client, uniqueName());
  });
});

/** Whether CLIENT LIST shows the connection of that name waiting in BLPOP. */
function blocked(list, connectionName) {
  const line = list.split("\n").find((line) => line.includes(` name=${connectionName} `));
  return line !== undefined && / flags=\w*b/.test(line);
}
