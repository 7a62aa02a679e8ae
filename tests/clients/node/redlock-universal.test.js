// redlock-universal: locks on one server and on several, through ioredis and node-redis.

import assert from "node:assert/strict";
import Redis from "ioredis";
import { createClient } from "redis";
import {
  IoredisAdapter,
  LockManager,
  NodeRedisAdapter,
  createLock,
  createRedlock,
} from "redlock-universal";

import { library, uniqueName } from "./behaviours.js";
import {
  MAX_WAIT_MS,
  ROUNDS,
  WORKERS,
  contend,
  eventually,
  leaseEnds,
  sleep,
  staysHeld,
  used,
} from "./contention.js";
import { MAIN, QUORUM, kill, killable } from "./servers.js";

const LONG_MS = 30_000;
const USING_MS = 3_000;
const LONG_TIMEOUT = { timeout: MAX_WAIT_MS };
const TRY_ONCE = { retryAttempts: 0 };
const TRY_LONG = { retryAttempts: 1_000, retryDelay: 15 };

/** The client libraries that it supports, set not to reconnect. */
const ADAPTERS = {
  async ioredis(t, url) {
    const client = new Redis(url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
    client.on("error", () => {});
    t.after(() => client.disconnect());
    await client.ping();
    return new IoredisAdapter(client, LONG_TIMEOUT);
  },
  async "node-redis"(t, url) {
    const socket = { reconnectStrategy: false, connectTimeout: MAX_WAIT_MS };
    const client = createClient({ url, socket });
    client.on("error", () => {});
    await client.connect();
    t.after(() => client.isOpen && client.destroy());
    return new NodeRedisAdapter(client, LONG_TIMEOUT);
  },
};

/** Whether the lock was granted. */
function attempt(lock) {
  return lock.acquire().then(
    () => true,
    () => false,
  );
}

library("redlock-universal", "redlock-universal", (behaviour) => {
  for (const [through, adapter] of Object.entries(ADAPTERS)) {
    const each = (sentence, test) => behaviour(`${sentence} (${through})`, test);

    const single = async (t, key, ttl = LONG_MS, options = TRY_ONCE) =>
      createLock({ adapter: await adapter(t, MAIN), key, ttl, ...options });

    const quorum = async (t, key, ttl = LONG_MS, options = TRY_ONCE, urls = QUORUM) => {
      const adapters = await Promise.all(urls.map((url) => adapter(t, url)));
      return createRedlock({ adapters, key, ttl, ...options });
    };

    for (const [kind, open] of Object.entries({ createLock: single, createRedlock: quorum })) {
      each(`${kind}: acquired, refused to others, released, free`, async (t) => {
        const name = uniqueName();
        const [first, second] = [await open(t, name), await open(t, name)];
        const handle = await first.acquire();
        assert.ok(await second.isLocked(name));
        assert.ok(!(await attempt(second)));
        assert.ok(await first.release(handle));
        assert.ok(!(await second.isLocked(name)));
        assert.ok(await attempt(second));
      });

      each(`${kind}: one of many gets in`, async (t) => {
        const [name, workers] = [uniqueName(), kind === "createLock" ? WORKERS : 3];
        const section = await contend(async (section) => {
          const lock = await open(t, name, LONG_MS, TRY_LONG);
          for (let round = 0; round < ROUNDS; round++) {
            const handle = await lock.acquire();
            await section.visit();
            assert.ok(await lock.release(handle));
          }
        }, workers);
        assert.equal(section.count, workers * ROUNDS);
      });

      each(`${kind}: refused before the end of the lease, granted after it`, async (t) => {
        const name = uniqueName();
        const [first, second] = [await open(t, name, 1_000), await open(t, name)];
        let since;
        await eventually(() => {
          since = performance.now();
          return attempt(first);
        });
        await leaseEnds(() => attempt(second), since, 1_000);
      });

      each(`${kind}: an extended lease holds beyond its first end`, async (t) => {
        const name = uniqueName();
        const [first, second] = [await open(t, name, 2_000), await open(t, name)];
        let since;
        await eventually(async () => {
          const handle = await first.acquire().catch(() => null);
          await sleep(200);
          since = performance.now();
          return handle && first.extend(handle, 2_000);
        });
        await leaseEnds(() => attempt(second), since, 2_000);
      });

      each(`${kind}: release and extension by another owner change nothing`, async (t) => {
        const name = uniqueName();
        const [first, second] = [await open(t, name), await open(t, name)];
        const handle = await first.acquire();
        const forged = { ...handle, value: "0123456789abcdef0123456789abcdef" };
        await second.release(forged).catch(() => {});
        assert.ok(!(await second.extend(forged, 1).catch(() => false)));
        assert.ok(!(await attempt(second)));
        assert.ok(await first.release(handle));
      });

      each(`${kind}: using extends it until the routine ends, then it is free`, async (t) => {
        const free = await eventually(async () => {
          const name = uniqueName();
          const [first, second] = [await open(t, name, USING_MS), await open(t, name)];
          const look = (signal) => staysHeld(signal, () => attempt(second), USING_MS);
          const held = await used(() => first.using(look));
          return held && { afterwards: await attempt(second) };
        });
        assert.ok(free.afterwards);
      });
    }

    each("LockManager: a batch is taken all or none", async (t) => {
      const manager = new LockManager({ nodes: [await adapter(t, MAIN)], defaultTTL: LONG_MS });
      const [one, two, three] = [uniqueName(), uniqueName(), uniqueName()];
      const handles = await manager.acquireBatch([one, two]);
      await assert.rejects(manager.acquireBatch([three, two], TRY_ONCE));
      const rest = await manager.acquireBatch([three]);
      await manager.releaseBatch([...handles, ...rest]);
      await manager.releaseBatch(await manager.acquireBatch([one, two, three]));
    });

    each("inspect: shows the owner and what is left of the lease", async (t) => {
      const name = uniqueName();
      const lock = await single(t, name);
      const handle = await lock.acquire();
      const seen = await (await adapter(t, MAIN)).inspect(name);
      assert.equal(seen.value, handle.value);
      assert.ok(seen.ttl > 0 && seen.ttl <= LONG_MS);
    });
  }

  behaviour(
    "createRedlock: taken while a minority is killed, refused without a majority",
    async (t) => {
      const servers = killable("redlock-universal");
      const name = uniqueName();
      const open = async () => {
        const adapters = await Promise.all(servers.map((url) => ADAPTERS.ioredis(t, url)));
        return createRedlock({ adapters, key: name, ttl: LONG_MS, ...TRY_ONCE });
      };
      const [first, second] = [await open(), await open()];
      const handle = await first.acquire();
      await kill(servers[0]);
      assert.ok(!(await attempt(second)));
      await first.release(handle);
      await eventually(async () => attempt(second));
      assert.ok(!(await attempt(first)));
      await kill(servers[1]);
      assert.ok(!(await attempt(first)));
    },
  );
});
