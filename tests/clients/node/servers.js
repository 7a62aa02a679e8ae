// The servers from environment variables, and the tests that own the disposable ones.
//
// A test that kills servers must own them: no other test may use its slice.

import Redis from "ioredis";

export const MAIN = process.env.REDIS_URL;
export const TLS = process.env.REDIS_TLS_URL;
export const TLS_CA = process.env.REDIS_TLS_CA;
export const CLUSTER = process.env.REDIS_CLUSTER_URL;
export const SENTINEL = process.env.REDIS_SENTINEL_URL;
export const SENTINEL_MASTER = "mymaster";

const DISPOSABLE = process.env.REDIS_SERVERS.split(",");

export const QUORUM = DISPOSABLE.slice(0, 5);
// The tests flush its scripts, which would break pipelines of other tests.
export const SCRIPT_FLUSH = DISPOSABLE[14];
const KILLED = { "redlock-4": 5, "redlock-5": 8, "redlock-universal": 11 };

/** Three servers that the tests of a package may kill. */
export function killable(packageName) {
  const first = KILLED[packageName];
  return DISPOSABLE.slice(first, first + 3);
}

/** Host and port, for clients that take no URL. */
export function address(url) {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

/** Stops a disposable server; it is not restarted. */
export async function kill(url) {
  const client = new Redis(url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  client.on("error", () => {});
  await client.call("SHUTDOWN", "NOSAVE").catch(() => {});
  client.disconnect();
}
