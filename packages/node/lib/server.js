"use strict";
// The class Server: starts and stops a server and sends it commands.

const { Clock } = require("./clock.js");
const { Connections } = require("./connections.js");
const { Faults } = require("./faults.js");
const { Journal } = require("./journal.js");
const { ServerProcess } = require("./process.js");
const { findProgram } = require("./program.js");

const OPTIONS = ["frozen", "clockStart", "lockKeys", "ignoredLockKeys", "options", "check"];

class Server {
  #options;
  #running;
  /** The port of the last start. */
  #port;
  clock;
  faults;
  journal;

  constructor(given = {}) {
    const unknown = Object.keys(given).find((name) => !OPTIONS.includes(name));
    if (unknown !== undefined) {
      throw new TypeError(`unknown option '${unknown}'. Known: ${OPTIONS.join(", ")}`);
    }
    const { options = [], check = [] } = given;
    this.#options = { directives: directives(given), options: options.map(String), check };
    const call = (...args) => this.call(...args);
    this.clock = new Clock(call);
    this.faults = new Faults(call);
    this.journal = new Journal(call);
  }

  get host() {
    return "127.0.0.1";
  }

  get port() {
    return this.#now().port;
  }

  get pid() {
    return this.#now().process.pid;
  }

  get url() {
    const password = this.#password();
    const user = password === undefined ? "" : `:${encodeURIComponent(password)}@`;
    return `redis://${user}${this.host}:${this.port}`;
  }

  async start() {
    return this.#start([]);
  }

  async restart() {
    const port = this.#port;
    if (port === undefined) throw new Error("the server has not been started");
    await this.stop();
    return this.#start(["--port", String(port)]);
  }

  async #start(more) {
    if (this.#running) throw new Error("the server is running");
    const { directives, options } = this.#options;
    const process = new ServerProcess(findProgram(), [...options, ...directives, ...more]);
    const port = await process.ready();
    this.#port = port;
    const password = this.#password();
    const greeting = password === undefined ? [] : [["AUTH", password]];
    // Fault rules do not apply to LOCKWHEEL commands. They may close connections of other commands.
    const control = new Connections(port, greeting);
    const calls = new Connections(port, greeting);
    this.#running = { process, port, control, calls };
    return this;
  }

  async call(...args) {
    const { control, calls } = this.#now();
    if (!/^lockwheel$/i.test(args[0])) return calls.call(args);
    const reply = await control.call(args);
    // A failover disconnects all other clients.
    if (/^failover$/i.test(args[1])) calls.close();
    return reply;
  }

  async reset() {
    await this.call("LOCKWHEEL", "RESET");
    this.#now().calls.closeIdle();
  }

  async check() {
    for (const name of this.#options.check) await this.journal.assert(name);
  }

  async stop() {
    const running = this.#running;
    if (!running) return;
    running.stopped ??= running.process.stop().then(() => (this.#running = undefined));
    running.control.close();
    running.calls.close();
    await running.stopped;
  }

  #now() {
    if (!this.#running) throw new Error("the server is not running");
    return this.#running;
  }

  #password() {
    const { options } = this.#options;
    const at = options.lastIndexOf("--requirepass");
    return at < 0 ? undefined : options[at + 1];
  }
}

/** The directives that stand for options of this package. */
function directives({ frozen, clockStart, lockKeys, ignoredLockKeys }) {
  const words = frozen ? ["--clock-frozen", "yes"] : [];
  if (clockStart !== undefined) words.push("--clock-start", String(Number(clockStart)));
  words.push(...patterns("lockKeys", "--lock-keys", lockKeys));
  words.push(...patterns("ignoredLockKeys", "--ignored-lock-keys", ignoredLockKeys));
  return words;
}

function patterns(option, directive, given) {
  if (given === undefined) return [];
  if (!Array.isArray(given)) throw new TypeError(`${option}: expected an array of patterns`);
  return [directive, given.join(" ")];
}

// Runtimes with Symbol.asyncDispose have `await using`, which stops the server.
if (Symbol.asyncDispose) {
  Server.prototype[Symbol.asyncDispose] = Server.prototype.stop;
}

async function start(options) {
  return new Server(options).start();
}

function serverBetween(before, after, options) {
  const server = new Server(options);
  before(async () => {
    // node:test does not run the hooks after one that failed.
    await server.stop();
    await server.start();
  });
  after(async () => {
    try {
      await server.check();
    } finally {
      await server.stop();
    }
  });
  return server;
}

module.exports = { Server, serverBetween, start };
