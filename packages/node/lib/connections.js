"use strict";
// Connections to the server, one call on each at a time: a call that waits, at a gate or for a clock
// that stands, keeps no other from being made.

const { connect } = require("node:net");
// Those of now: a test may put timers of its own in their place.
const { clearTimeout, setTimeout } = require("node:timers");

const { ReplyError, decode, encode } = require("./resp.js");

// A server on this machine answers at once, unless a test has ordered otherwise and forgot it: this
// tells which call waits for ever. More than a test that waits for a gate needs.
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
        this.#fail(`not answered for ${LIMIT_MS} ms`);
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

  /** Ends the call that waits, if there is one; from then on nobody is kept waiting by this. */
  #settle(end) {
    const waiting = this.#waiting;
    if (!waiting) return;
    this.#waiting = undefined;
    clearTimeout(waiting.limit);
    this.#socket.unref();
    end(waiting);
  }
}

/** Makes calls over a connection that is kept, and over others while that is taken. */
class Connections {
  #port;
  #greeting;
  #open = new Set();
  #idle;

  /** `greeting` is what is called first on each connection: AUTH, or nothing. */
  constructor(port, greeting = []) {
    this.#port = port;
    this.#greeting = greeting;
  }

  /** One call. Rejects with what the server refused it with. */
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

  /** Closes all; calls that are under way are rejected. */
  close() {
    for (const connection of this.#open) connection.close();
    this.#open.clear();
    this.#idle = undefined;
  }
}

module.exports = { Connections };
