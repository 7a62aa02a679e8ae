"use strict";
// Connections for lock objects, with the settings of a client of ioredis or node-redis.

// The limit for a node of a cluster, before another one is asked for the leader.
const NODE_LIMIT_MS = 1_000;

/**
 * Returns a function that opens such a connection. It does not connect again and sends nothing
 * again: a LOCK.ACQUIRE that is sent again would hold the lock twice. The lock limits its time.
 */
function connector(client) {
  if (typeof client?.duplicate === "function" && !client.isCluster) {
    if (typeof client.call === "function") {
      if (client.options?.role !== "slave") return () => ioredis(client);
      throw new TypeError("expected a client with the role master, and not with that of a slave");
    }
    // Clusters, sentinels and pools of node-redis cannot select a database.
    if (typeof client.select === "function") return () => nodeRedis(client);
  }
  throw new TypeError(
    "expected a Redis of ioredis, which may have Sentinels, or a client of node-redis's createClient",
  );
}

function ioredis(client) {
  const own = client.duplicate({
    lazyConnect: true,
    retryStrategy: null,
    reconnectOnError: null,
    autoResendUnfulfilledCommands: false,
    enableOfflineQueue: true,
    enableAutoPipelining: false,
    commandTimeout: undefined,
    socketTimeout: undefined,
    blockingTimeout: undefined,
    stringNumbers: false,
    replyMapping: "legacy",
    keyPrefix: "",
    ...limits(client.options),
  });
  let cause;
  own.on("error", (error) => (cause = error));
  const fail = (error) => {
    throw cause ?? error;
  };
  return {
    ready: own.connect().catch(fail),
    isOpen: () => own.status === "ready",
    send: (words) => own.call(...words),
    close: () => own.disconnect(),
  };
}

/** Limits for asking Sentinels; ioredis waits for each without one. */
function limits({ sentinels, connectTimeout, sentinelCommandTimeout }) {
  const limited = (givenMs) => Math.min(givenMs ?? NODE_LIMIT_MS, NODE_LIMIT_MS);
  return sentinels && {
    connectTimeout: limited(connectTimeout),
    sentinelCommandTimeout: limited(sentinelCommandTimeout),
  };
}

function nodeRedis(client) {
  const own = client.duplicate({
    socket: { ...client.options?.socket, reconnectStrategy: false, socketTimeout: undefined },
    pingInterval: undefined,
    legacyMode: false,
    commandOptions: {},
    // The client shares its cache with duplicates, which empty it when they end.
    clientSideCache: undefined,
  });
  let isConnected = false;
  let isClosed = false;
  const close = () => {
    isClosed = true;
    // Version 4 cannot be stopped before it is connected and has begun to log in.
    if (!isConnected || !own.isOpen) return;
    if (own.destroy) own.destroy();
    else own.disconnect().catch(() => {});
  };
  const connected = () => {
    isConnected = true;
    if (isClosed) close();
  };
  own.on("error", () => {}); // The call rejects with it.
  own.once("connect", () => queueMicrotask(connected));
  return {
    ready: own.connect(),
    isOpen: () => own.isReady,
    send: (words) => own.sendCommand(words),
    close,
  };
}

module.exports = { connector };
