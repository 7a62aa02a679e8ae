// Takes and releases locks with ioredis until its input ends: see ../README.md.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const LOCKS = 5;
const RETRY_DELAY_MS = 5;
const RELEASE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
const RENEW =
  "if redis.call('get', KEYS[1]) == ARGV[1] then" +
  " return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
// Errors by which a server that does not lead refuses any request.
const REFUSALS = ["LOADING ", "MASTERDOWN ", "READONLY "];
// Every error of a server begins with a word in capitals.
const SERVER_ERROR = /^[A-Z]+ /;

const [library, servers, seed, ...numbers] = process.argv.slice(2);
const [threads, leastLeaseMs, mostLeaseMs, replyTimeoutMs] = numbers.map(Number);

let epoch = null;
let ended = false;

/** A generator of numbers from 0 to below 1 (mulberry32). */
function generator(state) {
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Without retries: a request whose answer is lost must not be repeated unnoticed. */
function connect() {
  const options = {
    commandTimeout: replyTimeoutMs,
    connectTimeout: replyTimeoutMs,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    retryStrategy: () => RETRY_DELAY_MS,
    sentinelRetryStrategy: () => RETRY_DELAY_MS,
    // A server that is no master any more may keep the connection.
    reconnectOnError: (error) => error.message.startsWith("READONLY"),
  };
  const [kind, list] = servers.includes("=") ? servers.split("=") : ["", servers];
  const addresses = list.split(",").map((address) => {
    const [host, port] = address.split(":");
    return { host, port: Number(port) };
  });
  const place = kind === "sentinel" ? { sentinels: addresses, name: "mymaster" } : addresses[0];
  const client = new Redis({ ...options, ...place });
  // Lost connections are seen by requests.
  client.on("error", () => {});
  return client;
}

/** One thread: a chain of requests. Each attempt is an owner of its own. */
class Worker {
  constructor(number) {
    this.name = `${library}-${number}`;
    this.random = generator(Number(seed) * 1000 + number);
    this.rounds = 0;
    this.server = connect();
  }

  below(bound) {
    return Math.floor(this.random() * bound);
  }

  async run() {
    await this.waitUntilReady();
    let ownEpoch = null;
    while (!ended) {
      if (ownEpoch !== epoch) {
        ownEpoch = epoch;
        console.log(`epoch ${this.name} ${ownEpoch}`);
      }
      await this.round(ownEpoch);
    }
  }

  async round(ownEpoch) {
    this.owner = `${this.name}.${++this.rounds}`;
    const leaseMs = leastLeaseMs + this.below(mostLeaseMs - leastLeaseMs + 1);
    const lock = `plain-${ownEpoch}-${this.below(LOCKS)}`;
    const { server, owner } = this;
    const taken = await this.ask(lock, `acquire ${leaseMs}ms`, async () =>
      (await server.set(lock, owner, "PX", leaseMs, "NX")) === "OK" ? "granted" : "refused",
    );
    if (taken !== "granted") {
      await sleep(this.below(10));
      return;
    }
    if (await this.hold(lock, leaseMs)) {
      await this.ask(lock, "release", async () =>
        (await server.eval(RELEASE, 1, lock, owner)) === 1 ? "released" : "not-owner",
      );
    }
  }

  /** Holds the lock for a while. Returns whether to release it. */
  async hold(lock, leaseMs) {
    const { server, owner } = this;
    const longestMs = [3, 3, 3, 100, 100, leaseMs];
    let leftMs = this.below(longestMs[this.below(longestMs.length)]);
    while (leftMs > 0 && !ended) {
      const pauseMs = Math.min(leftMs, 1 + this.below(100));
      await sleep(pauseMs);
      leftMs -= pauseMs;
      const choice = this.below(4);
      let answer = "held";
      if (choice === 0) {
        answer = await this.ask(lock, `renew ${leaseMs}ms`, async () =>
          (await server.eval(RENEW, 1, lock, owner, leaseMs)) === 1 ? "granted" : "not-owner",
        );
      }
      if (choice === 1 || answer === "unknown") {
        // If the server was away, it must know the holder.
        answer = await this.ask(lock, "check", async () =>
          (await server.get(lock)) === owner ? "held" : "not-owner",
        );
      }
      if (answer === "not-owner") {
        return false;
      }
    }
    return true;
  }

  /**
   * Writes an event. Returns the answer, `unknown` if it was lost, or null if the server refuses
   * any request. Returns only when the server answers requests.
   */
  async ask(lock, action, request) {
    let answer;
    let late = "";
    const invokedUs = process.hrtime.bigint() / 1000n;
    try {
      answer = await request();
    } catch (error) {
      if (isRefusal(error)) {
        answer = null;
      } else if (SERVER_ERROR.test(error.message)) {
        throw error;
      } else {
        answer = "unknown";
        late = "late ";
      }
    }
    const returnedUs = process.hrtime.bigint() / 1000n + 1n;
    if (answer !== null) {
      const times = `${invokedUs}..${returnedUs}`;
      console.log(`${late}${times} ${lock} ${this.owner} ${action} ${answer}`);
    }
    if (answer === null || answer === "unknown") {
      await this.waitUntilReady();
    }
    return answer;
  }

  async waitUntilReady() {
    while (!ended) {
      await sleep(RETRY_DELAY_MS);
      try {
        await this.server.ping();
        return;
      } catch (error) {
        if (SERVER_ERROR.test(error.message) && !isRefusal(error)) {
          throw error;
        }
      }
    }
  }
}

function isRefusal(error) {
  return REFUSALS.some((code) => error.message.startsWith(code));
}

const input = createInterface({ input: process.stdin });
const begun = new Promise((resolve) => {
  input.on("line", (line) => {
    epoch = Number(line);
    resolve();
  });
});
input.on("close", () => {
  ended = true;
});
await begun;
const run = async (number) => {
  const worker = new Worker(number);
  try {
    await worker.run();
  } catch (problem) {
    console.log(`problem ${worker.name}: ${problem}`.replaceAll("\n", " "));
  }
};
await Promise.all(Array.from({ length: threads }, (_, number) => run(number)));
// The connections are left open: nothing is left to do.
process.exit(0);
