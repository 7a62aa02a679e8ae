// The test with Lockwheel on docs/coming-from.md beside that with redis-memory-server.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import Redis from "ioredis";
import { serverBetween } from "lockwheel";

const server = serverBetween(beforeEach, afterEach, { frozen: true });

test("a lock ends with its lease", async () => {
  const redis = new Redis(server.url);
  const take = (owner) => redis.set("lock:invoice:7", owner, "PX", 30_000, "NX");
  assert.equal(await take("first"), "OK");
  assert.equal(await take("second"), null);
  await server.clock.advance("30s"); // The lease ends here.
  assert.equal(await take("second"), "OK");
  redis.disconnect();
});
