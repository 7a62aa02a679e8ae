// redlock 4 and 5: quorum locks over several servers, some of which are killed.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import Redis from "ioredis";

import { library, uniqueName } from "./behaviours.js";
import {
  ROUNDS,
  contend,
  eventually,
  leaseEnds,
  sleep,
  staysHeld,
  stillWaits,
  used,
} from "./contention.js";
import { QUORUM, kill, killable } from "./servers.js";

const require = createRequire(import.meta.url);
const LONG_MS = 30_000;
const TRY_ONCE = { retryCount: 0 };
const TRY_LONG = { retryCount: 2_000, retryDelay: 15, retryJitter: 10 };
// Version 5 keeps its keys on a minority of servers while it tries again. If every client holds
// some servers and none has a majority, they continue when their leases end.
const CROWDED_MS = 3_000;
const USING_MS = 3_000;

/** The differences between the two versions. */
const VERSIONS = [
  { packageName: "redlock-4", Redlock: require("redlock-4"), release: (lock) => lock.unlock() },
  {
    packageName: "redlock-5",
    Redlock: require("redlock-5").default,
    release: (lock) => lock.release(),
  },
];

for (const { packageName, Redlock, release } of VERSIONS) {
  /** Connects to all servers; a connection that is lost stays lost. */
  const connect = async (t, urls) => {
    const options = { retryStrategy: () => null, maxRetriesPerRequest: 0 };
    const clients = urls.map((url) => new Redis(url, options));
    for (const client of clients) {
      client.on("error", () => {});
      t.after(() => client.disconnect());
    }
    await Promise.all(clients.map((client) => client.ping()));
    return clients;
  };

  /** A lock manager with its own connections. */
  const open = async (t, settings = TRY_ONCE, urls = QUORUM) => {
    const redlock = new Redlock(await connect(t, urls), settings);
    redlock.on("clientError", () => {});
    return redlock;
  };

  /** Whether the lock was granted. */
  const attempt = (redlock, names, lease = LONG_MS) =>
    redlock.acquire(names, lease).then(
      () => true,
      () => false,
    );

  library("redlock", packageName, (behaviour) => {
    behaviour("acquired on all servers, refused to others, released, free", async (t) => {
      const [first, second, name] = [await open(t), await open(t), uniqueName()];
      const clients = await connect(t, QUORUM);
      const held = () => Promise.all(clients.map((client) => client.exists(name)));
      const lock = await first.acquire([name], LONG_MS);
      assert.ok(lock.expiration > Date.now());
      await eventually(async () => !(await held()).includes(0));
      assert.ok(!(await attempt(second, [name])));
      await release(lock);
      await eventually(async () => !(await held()).includes(1));
      assert.ok(await attempt(second, [name]));
    });

    behaviour("one of many gets in", async (t) => {
      const name = uniqueName();
      const section = await contend(async (section) => {
        const redlock = await open(t, TRY_LONG);
        for (let round = 0; round < ROUNDS; round++) {
          const lock = await redlock.acquire([name], CROWDED_MS);
          await section.visit();
          await release(lock);
        }
      }, 4);
      assert.equal(section.count, 4 * ROUNDS);
    });

    behaviour("refused before the end of the lease, granted after it", async (t) => {
      const [first, second, name] = [await open(t), await open(t), uniqueName()];
      let since;
      await eventually(() => {
        since = performance.now();
        return attempt(first, [name], 1_000);
      });
      await leaseEnds(() => attempt(second, [name]), since, 1_000);
    });

    behaviour("a waiter gets it when it is released, not before", async (t) => {
      const [first, second, name] = [await open(t), await open(t, TRY_LONG), uniqueName()];
      const lock = await first.acquire([name], LONG_MS);
      const waiting = second.acquire([name], LONG_MS);
      assert.ok(await stillWaits(waiting));
      await release(lock);
      await release(await waiting);
    });

    behaviour("an extended lease holds beyond its first end", async (t) => {
      const [first, second, name] = [await open(t), await open(t), uniqueName()];
      let since;
      await eventually(async () => {
        const lock = await first.acquire([name], 2_000).catch(() => null);
        await sleep(200);
        since = performance.now();
        return lock?.extend(2_000).catch(() => false);
      });
      await leaseEnds(() => attempt(second, [name]), since, 2_000);
    });

    behaviour("release and extension after the lease are refused", async (t) => {
      const [first, second, name] = [await open(t), await open(t), uniqueName()];
      const late = await eventually(() => first.acquire([name], 1_000).catch(() => null));
      await eventually(() => attempt(second, [name]));
      await assert.rejects(late.extend(LONG_MS));
      await assert.rejects(release(late));
      assert.ok(!(await attempt(await open(t), [name])));
    });

    behaviour("several resources are taken all or none", async (t) => {
      const [first, second] = [await open(t), await open(t)];
      const [one, two, three] = [uniqueName(), uniqueName(), uniqueName()];
      const lock = await first.acquire([one, two], LONG_MS);
      assert.ok(!(await attempt(second, [three, two])));
      assert.ok(await attempt(second, [three]));
      await release(lock);
      assert.ok(await attempt(second, [two]));
    });

    behaviour("a key on a minority of servers holds nothing up, a majority does", async (t) => {
      const [redlock, clients, name] = [await open(t), await connect(t, QUORUM), uniqueName()];
      const block = (client) => client.set(name, "another", "PX", LONG_MS);
      await Promise.all(clients.slice(0, 2).map(block));
      await release(await redlock.acquire([name], LONG_MS));
      await block(clients[2]);
      assert.ok(!(await attempt(redlock, [name])));
      await eventually(async () => (await clients[3].exists(name)) === 0);
      await eventually(async () => (await clients[4].exists(name)) === 0);
    });

    behaviour("released even when the servers forgot the scripts meanwhile", async (t) => {
      const [redlock, clients, name] = [await open(t), await connect(t, QUORUM), uniqueName()];
      const lock = await redlock.acquire([name], LONG_MS);
      await Promise.all(clients.map((client) => client.script("FLUSH")));
      await release(lock);
      assert.ok(await attempt(redlock, [name]));
    });

    behaviour("taken while a minority is killed, refused to all without a majority", async (t) => {
      const servers = killable(packageName);
      const [first, second] = [await open(t, TRY_ONCE, servers), await open(t, TRY_ONCE, servers)];
      const name = uniqueName();
      const lock = await first.acquire([name], LONG_MS);
      await kill(servers[0]);
      assert.ok(!(await attempt(second, [name])));
      const extended = await lock.extend(LONG_MS);
      await release(extended);
      const again = await second.acquire([name], LONG_MS);
      assert.ok(!(await attempt(first, [name])));
      await release(again);
      await kill(servers[1]);
      assert.ok(!(await attempt(first, [name])));
      assert.ok(!(await attempt(second, [uniqueName()])));
    });

    if (packageName === "redlock-5") {
      behaviour("using: the lock is extended until the routine ends, then free", async (t) => {
        const first = await open(t, { ...TRY_ONCE, automaticExtensionThreshold: 1_500 });
        const second = await open(t);
        const free = await eventually(async () => {
          const name = uniqueName();
          const look = (signal) => staysHeld(signal, () => attempt(second, [name]), USING_MS);
          const held = await used(() => first.using([name], USING_MS, look));
          return held && { afterwards: await attempt(second, [name]) };
        });
        assert.ok(free.afterwards);
      });
    }
  });
}
