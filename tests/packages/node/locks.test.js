import assert from "node:assert/strict";
import { test } from "node:test";

import Redis from "ioredis";
import { start } from "lockwheel";
import { Lock } from "lockwheel/locks";

test("a lock is held until it is released", async (t) => {
  const server = await start({ frozen: true });
  t.after(() => server.stop());
  const client = new Redis(server.url);
  t.after(() => client.disconnect());
  const lock = new Lock(client, "lock", { ttlMs: 600_000, renewMs: 0 });
  assert.ok(await lock.acquire());
  assert.ok(lock.token > 0);
  assert.ok(await lock.release());
});
