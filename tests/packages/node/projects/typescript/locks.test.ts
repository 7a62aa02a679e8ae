// A test of the types of lock objects: TypeScript checks it and does not run it.

import { Redis } from "ioredis";
import { createClient } from "redis";

import { Lock, LockLost, type LockOptions } from "lockwheel/locks";

const options: LockOptions = { ttlMs: 30_000, permits: [1, 3], onLost: ({ key }) => key.length };

export async function right(): Promise<void> {
  const lock: Lock = new Lock(new Redis(), "lock", options);
  const held: boolean = (await lock.acquire({ waitMs: 5_000 })) && lock.isHeld;
  const token: number | undefined = lock.token;
  const result: string = await lock.using(async ({ owner }) => owner, { signal: lock.signal });
  await using other = await new Lock(createClient(), "lock", { ttlMs: 1, bound: true }).hold();
  const still: boolean = (await other.renew()) && (await other.release());
  const lost: boolean = lock.signal.reason instanceof LockLost;
  return void [held, token, result, still, lost];
}

export async function wrong(): Promise<void> {
  // @ts-expect-error: a lock has a lease.
  new Lock(new Redis(), "lock", { waitMs: 5_000 });
  // @ts-expect-error: there is no such option.
  new Lock(new Redis(), "lock", { ttlMs: 30_000, ttl: 30 });
  // @ts-expect-error: a lock needs a client.
  new Lock("redis://127.0.0.1", "lock", { ttlMs: 30_000 });
  // @ts-expect-error: a semaphore has a number of permits.
  new Lock(new Redis(), "lock", { ttlMs: 30_000, permits: 1 });
}
