"use strict";
// Connections for lock objects, with the settings of a client of ioredis or node-redis.

/**
 * Returns a function that opens such a connection. It does not connect again and sends nothing
 * again: a LOCK.ACQUIRE that is sent again would hold the lock twice. The lock limits its time.
 */
function connector(client) {
  if (typeof client?.duplicate === "function" && !client.isCluster) {
    if (typeof client.call === "function") return () => ioredis(client);
    // Clusters, sentinels and pools of node-redis cannot select a database.
    if (typeof client.select === "function") return () => nodeRedis(client);
  }
  throw new TypeError("expected a Redis of ioredis, or a client of node-redis's createClient");
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
