"use strict";
// Connections to the server. Each runs one call at a time, so that a call that waits for a gate or
// for the clock does not delay other calls.

const { connect } = require("node:net");
// Imported now, since a test may replace the global timers by fake ones.
const { clearTimeout, setTimeout } = require("node:timers");

const { ReplyError, decode, encode } = require("./resp.js");

// The limit for a reply. A local server replies at once unless a fault rule or a gate holds the call.
// The error then names the call that would wait forever.
const LIMIT_MS = 60_000;

class Connection {
  #socket;
  #received = Buffer.alloc(0);
  #waiting;
  closed = false;

  constructor(port, closed) {
    this.#socket = connect(port, "127.0.0.1");
    this.#socket.setNoDelay(true);
    this.#socket.on("data", (bytes) => this.#receive(bytes));
    this.#socket.on("error", (error) => this.#fail(error.message));
    this.#socket.on("close", () => {
      this.#fail("the server closed the connection");
      closed();
    });
  }

  call(args) {
    return new Promise((resolve, reject) => {
      const limit = setTimeout(() => {
        this.#fail(`no reply within ${LIMIT_MS} ms`);
        this.close();
      }, LIMIT_MS);
      this.#waiting = { args, resolve, reject, limit };
      this.#socket.ref();
      this.#socket.write(encode(args));
    });
  }

  close() {
    this.closed = true;
    this.#socket.destroy();
  }

  #receive(bytes) {
    this.#received = Buffer.concat([this.#received, bytes]);
    for (let decoded; (decoded = decode(this.#received)); ) {
      const { reply, next } = decoded;
      this.#received = this.#received.subarray(next);
      this.#settle(({ resolve, reject }) => {
        if (reply instanceof ReplyError) reject(reply);
        else resolve(reply);
      });
    }
  }

  #fail(reason) {
    this.closed = true;
    this.#settle(({ args, reject }) => reject(new Error(`${args.join(" ")}: ${reason}`)));
  }

  /** Settles the call in progress, if any, and lets the process exit. */
  #settle(end) {
    const waiting = this.#waiting;
    if (!waiting) return;
    this.#waiting = undefined;
    clearTimeout(waiting.limit);
    this.#socket.unref();
    end(waiting);
  }
}

/** Keeps one connection for calls, and opens others while that one is in use. */
class Connections {
  #port;
  #greeting;
  #open = new Set();
  #idle;

  /** `greeting` is called first on each connection: AUTH, or nothing. */
  constructor(port, greeting = []) {
    this.#port = port;
    this.#greeting = greeting;
  }

  /** Runs one command. Rejects with a `ReplyError` for an error reply. */
  async call(args) {
    const connection = await this.#take();
    try {
      return await connection.call(args);
    } finally {
      this.#put(connection);
    }
  }

  async #take() {
    const idle = this.#idle;
    this.#idle = undefined;
    if (idle && !idle.closed) return idle;
    const connection = new Connection(this.#port, () => this.#open.delete(connection));
    this.#open.add(connection);
    for (const args of this.#greeting) await connection.call(args);
    return connection;
  }

  #put(connection) {
    if (this.#idle || !this.#open.has(connection)) connection.close();
    else this.#idle = connection;
  }

  /** Closes the idle connection: the next call begins a new session. */
  closeIdle() {
    this.#idle?.close();
    this.#idle = undefined;
  }

  /** Closes all connections and rejects the calls in progress. */
  close() {
    for (const connection of this.#open) connection.close();
    this.#open.clear();
    this.#idle = undefined;
  }
}

module.exports = { Connections };
