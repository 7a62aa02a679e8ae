"use strict";
// The class Lock: a native lock of a Lockwheel server (LOCK.*).

const { randomBytes } = require("node:crypto");
const { hostname } = require("node:os");
// Imported now, for the limits: fake timers of a test apply only to the renewals.
const { clearTimeout: clearLimit, setTimeout: setLimit } = require("node:timers");

const { connector } = require("./clients.js");

// The limit for a reply, in addition to the time that the lock waits.
const LIMIT_MS = 10_000;
// The longest pause before a failed renewal is tried again.
const PAUSE_MS = 100;
// The shortest limit for the reply to a renewal, unless the lease is too short for it.
const RENEWAL_LIMIT_MS = 1_000;
// A lock that is bound with a shorter grace is not renewed more often than with this one.
const GRACE_MS_MIN = 300;

const MODES = ["shared", "permits", "bound", "graceMs", "meta"];
const OPTIONS = ["ttlMs", "waitMs", "owner", ...MODES, "renewMs", "onLost"];

class LockError extends Error {
  name = this.constructor.name;
}

class NotAcquired extends LockError {}

class LockLost extends LockError {}

class NoNativeLocks extends LockError {}

class Lock {
  key;
  owner;
  token;
  /** Is aborted when the last grant is found to be lost. */
  signal = new AbortController().signal;

  #connect;
  /** The connection, if there is one. */
  #own;
  #words;
  #options;
  #times;
  /** The controller of the signal, while the lock is held. */
  #grant;
  #trustedUntilMs;
  #timer;
  /** Fires when the lock is lost by the clock. */
  #expiry;
  #denial;
  /** The end of the last of the calls, which run one at a time. */
  #last = Promise.resolve();

  constructor(client, key, given = {}) {
    const unknown = Object.keys(given).find((name) => !OPTIONS.includes(name));
    if (unknown !== undefined) {
      throw new TypeError(`unknown option '${unknown}'. Known: ${OPTIONS.join(", ")}`);
    }
    if (!Number.isInteger(given.ttlMs)) throw new TypeError("ttlMs: expected milliseconds");
    if (given.shared && given.permits) throw new TypeError("a lock is shared or has permits");
    const { waitMs = 0, graceMs = 2_000 } = given;
    this.#options = { ...given, waitMs, graceMs };
    this.#times = times(this.#options);
    this.#connect = connector(client);
    this.key = key;
    const random = randomBytes(8).toString("hex");
    this.owner = given.owner ?? `${hostname()}:${process.pid}:${random}`;
    this.#words = [`${client.options?.keyPrefix ?? ""}${key}`, this.owner];
  }

  get isHeld() {
    return this.#grant !== undefined && !this.#isOver();
  }

  /** Whether the lock was lost by the clock of this process. With a grace of 0 there is no time. */
  #isOver() {
    return this.#times.trustMs > 0 && performance.now() >= this.#trustedUntilMs;
  }

  acquire({ waitMs = this.#options.waitMs, signal } = {}) {
    return this.#alone(async () => {
      if (this.isHeld) throw new LockError(`this object holds the lock '${this.key}' already`);
      signal?.throwIfAborted();
      const lease = ["TTL", this.#options.ttlMs, "WAIT", waitMs];
      const words = ["LOCK.ACQUIRE", ...this.#words, ...lease, ...mode(this.#options)];
      const begunMs = performance.now();
      try {
        this.#settle(await this.#call(words, waitMs + LIMIT_MS, { tries: 1, signal }), begunMs);
        // It is not known when in this time the lease began.
        const isSlow = performance.now() - begunMs > this.#times.trustMs / 3;
        if (this.isHeld && isSlow) await this.#renew(this.#grant);
      } catch (error) {
        this.#end(false);
        throw error;
      } finally {
        if (!this.isHeld) this.#disconnect();
      }
      return this.isHeld;
    });
  }

  renew() {
    return this.#alone(() => this.#renew(this.#grant));
  }

  release() {
    return this.#alone(async () => {
      if (!this.isHeld) return false;
      // An owner of its own holds the lock once, also if the reply to a grant was lost. With
      // another owner, a release that is sent again may be that of another object.
      const [all, tries] = this.#options.owner === undefined ? [["ALL"], 2] : [[], 1];
      const words = ["LOCK.RELEASE", ...this.#words, "TOKEN", this.token, ...all];
      let isLost = false;
      try {
        isLost = (await this.#call(words, LIMIT_MS, { tries })) === null;
      } finally {
        this.#end(isLost);
      }
      return !isLost;
    });
  }

  async hold(options) {
    if (!(await this.acquire(options))) throw new NotAcquired(this.#denial);
    return this;
  }

  async using(work, options) {
    await this.hold(options);
    let result;
    try {
      result = await work(this);
    } catch (error) {
      await this.release().catch(() => {});
      throw error;
    }
    await leave(this);
    return result;
  }

  /** Runs a call after all earlier ones. */
  #alone(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }

  /** Reads the reply to a LOCK.ACQUIRE that was sent at this time. */
  #settle(reply, begunMs) {
    const { status, token, holders, ttl, queue } = fieldsOf(reply);
    if (status !== "acquired") {
      const state = `owners ${holders}, lease ${ttl} ms, queue ${queue}`;
      this.#denial = `the lock '${this.key}' was not acquired (${status}): ${state}`;
      return;
    }
    this.token = token;
    this.#denial = `the lock '${this.key}' was acquired, and lost at once`;
    const grant = new AbortController();
    this.#grant = grant;
    this.signal = grant.signal;
    const { onLost } = this.#options;
    if (onLost) grant.signal.addEventListener("abort", () => onLost(this));
    this.#trust(grant, begunMs);
    this.#keep(grant, this.#times.periodMs);
  }

  /** The server has confirmed the lease of a grant to a command that was sent at this time. */
  #trust(grant, begunMs) {
    this.#trustedUntilMs = begunMs + this.#times.trustMs;
    clearLimit(this.#expiry);
    if (this.#times.trustMs > 0) this.#expire(grant);
  }

  /** Ends a grant when it is over by the clock, whatever a renewal waits for. */
  #expire(grant) {
    const end = () => {
      if (this.#grant !== grant) return;
      if (this.#isOver()) this.#end(true);
      else this.#expire(grant);
    };
    this.#expiry = setLimit(end, Math.max(1, this.#trustedUntilMs - performance.now()));
  }

  /** Renews the lease of one grant until it ends. */
  #keep(grant, pauseMs) {
    const { periodMs } = this.#times;
    if (periodMs <= 0) return;
    this.#timer = setTimeout(async () => {
      const renewed = this.#alone(() => this.#renew(grant));
      const next = await renewed.then(
        () => periodMs,
        () => Math.min(periodMs, PAUSE_MS),
      );
      if (this.#grant === grant) this.#keep(grant, next);
    }, pauseMs);
  }

  async #renew(grant) {
    if (!grant || this.#grant !== grant) return false;
    const begunMs = performance.now();
    const lease = ["TTL", this.#options.ttlMs, "TOKEN", this.token];
    const words = ["LOCK.RENEW", ...this.#words, ...lease];
    let isHeld;
    try {
      isHeld = (await this.#call(words, this.#times.limitMs)) === 1;
    } catch (error) {
      if (this.#grant === grant && performance.now() < this.#trustedUntilMs) throw error;
      isHeld = false;
    }
    if (this.#grant !== grant) return false;
    if (isHeld) this.#trust(grant, begunMs);
    else this.#end(true);
    return isHeld;
  }

  /** Ends the grant. */
  #end(isLost) {
    const grant = this.#grant;
    this.#grant = undefined;
    clearTimeout(this.#timer);
    clearLimit(this.#expiry);
    this.#disconnect();
    if (!isLost) return;
    grant.abort(new LockLost(`the lock '${this.key}' with the token ${this.token} was lost`));
  }

  #disconnect() {
    this.#own?.close();
    this.#own = undefined;
  }

  /** The reply to a command, which is sent again if the connection has ended. */
  async #call(words, limitMs, { tries = 2, signal } = {}) {
    let stop;
    const stopped = new Promise((_, reject) => (stop = reject));
    const late = () => stop(new LockError(`no reply to ${words[0]} within ${limitMs} ms`));
    const limit = setLimit(late, limitMs);
    const abort = () => stop(signal.reason);
    signal?.addEventListener("abort", abort);
    stopped.catch(() => this.#disconnect());
    try {
      return await Promise.race([stopped, this.#exchange(words.map(String), tries)]);
    } finally {
      clearLimit(limit);
      signal?.removeEventListener("abort", abort);
    }
  }

  async #exchange(words, tries) {
    if (!this.#own?.isOpen()) {
      this.#disconnect();
      this.#own = this.#connect();
    }
    const own = this.#own;
    try {
      await own.ready;
      return await own.send(words);
    } catch (error) {
      if (own.isOpen()) throw explained(error);
      // The call was stopped if it has another connection now, or none.
      if (tries === 1 || this.#own !== own) throw error;
      return this.#exchange(words, tries - 1);
    }
  }
}

// Runtimes with Symbol.asyncDispose have `await using`, which releases the lock.
if (Symbol.asyncDispose) {
  Lock.prototype[Symbol.asyncDispose] = function () {
    return leave(this);
  };
}

/** Releases a lock at the end of its scope. */
async function leave(lock) {
  await lock.release();
  lock.signal.throwIfAborted();
}

/**
 * The times of a lock: between renewals, of trust after a request that was answered was sent, and the
 * limit for a renewal.
 */
function times({ ttlMs, bound, graceMs, renewMs }) {
  const limitedMs = bound ? graceMs : ttlMs;
  const periodMs = renewMs ?? Math.min(ttlMs, Math.max(limitedMs, GRACE_MS_MIN)) / 3;
  // The clock of the server may be faster by a twentieth.
  const trustMs = (Math.min(ttlMs, limitedMs) * 19) / 20;
  const shortestMs = Math.min(ttlMs / 3, RENEWAL_LIMIT_MS);
  return { periodMs, trustMs, limitMs: Math.min(Math.max(trustMs / 3, shortestMs), LIMIT_MS) };
}

/** The words of LOCK.ACQUIRE after those of the lease. */
function mode({ shared, permits, bound, graceMs, meta }) {
  const words = shared ? ["SHARED"] : [];
  if (permits) words.push("PERMITS", permits[0], "OF", permits[1]);
  if (bound) words.push("BOUND", "GRACE", graceMs);
  if (meta !== undefined) words.push("META", meta);
  return words;
}

/** The fields of a map, which is an array of names and values in RESP2. */
function fieldsOf(reply) {
  if (!Array.isArray(reply)) return reply;
  const fields = {};
  for (let index = 0; index < reply.length; index += 2) fields[reply[index]] = reply[index + 1];
  return fields;
}

function explained(error) {
  if (!/unknown command/i.test(error.message)) return error;
  return new NoNativeLocks("this server has no native locks: it must be Lockwheel 0.1 or later");
}

module.exports = { Lock, LockError, LockLost, NoNativeLocks, NotAcquired };
