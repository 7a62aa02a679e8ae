// The servers that the environment names, and which tests own which of the disposable ones.
//
// A test that kills servers must own them: no other test may use its slice.

import Redis from "ioredis";

export const MAIN = process.env.REDIS_URL;
export const CLUSTER = process.env.REDIS_CLUSTER_URL;
export const SENTINEL = process.env.REDIS_SENTINEL_URL;
export const SENTINEL_MASTER = "mymaster";

const DISPOSABLE = process.env.REDIS_SERVERS.split(",");

export const QUORUM = DISPOSABLE.slice(0, 5);
// Its scripts are flushed, which a pipeline of another test could meet after it looked for its own.
export const FORGETFUL = DISPOSABLE[14];
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

/** Ends a disposable server for good. */
export async function kill(url) {
  const client = new Redis(url, { retryStrategy: () => null, maxRetriesPerRequest: 0 });
  client.on("error", () => {});
  await client.call("SHUTDOWN", "NOSAVE").catch(() => {});
  client.disconnect();
}
