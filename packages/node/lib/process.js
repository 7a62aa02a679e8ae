"use strict";
// The process of a server: starts it, waits until it accepts connections, ends it.

const { spawn } = require("node:child_process");

const READY = /The server is now ready to accept connections on port (\d+)\r?\n/;

const ARGUMENTS = ["--port", "0", "--bind", "127.0.0.1", "--enable-test-commands", "local"];
// The server ends at the end of its standard input, which closes when this process ends.
const END_WITH_US = ["--end-with-stdin", "yes"];

// Error messages contain the end of the output.
const TAIL_CHARACTERS = 4_000;

class ServerProcess {
  #child;
  #tail = "";
  /** Resolves with a description of the exit when the process has ended. */
  ended;

  /** Starts `program`; `options` are those of the server. */
  constructor(program, options) {
    // A configuration file must precede all options.
    const files = options.slice(0, options[0]?.startsWith("-") ? 0 : 1);
    const others = options.slice(files.length);
    const words = [...files, ...ARGUMENTS, ...END_WITH_US, ...others];
    this.#child = spawn(program, words, { env: environment() });
    this.#child.stdin.on("error", () => {});
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text) => (this.#tail = (this.#tail + text).slice(-TAIL_CHARACTERS)));
    }
    this.ended = new Promise((resolve) => {
      this.#child.once("error", (error) => resolve(`did not start: ${error.message}`));
      this.#child.once("close", (status, signal) => resolve(`ended with ${signal ?? status}`));
    });
  }

  get pid() {
    return this.#child.pid;
  }

  /** Waits until the server accepts connections. Returns the port. */
  async ready() {
    const port = new Promise((resolve) => {
      const look = () => {
        const found = READY.exec(this.#tail);
        if (!found) return;
        this.#child.stdout.off("data", look);
        resolve(Number(found[1]));
      };
      this.#child.stdout.on("data", look);
    });
    const outcome = await Promise.race([port, this.ended]);
    if (typeof outcome === "string") throw new Error(`the server ${outcome}\n${this.#tail}`);
    this.#keepProcess(false);
    return outcome;
  }

  /** Stops the server and waits until it has ended. */
  async stop() {
    this.#keepProcess(true);
    this.#child.kill("SIGTERM");
    await this.ended;
  }

  /** Sets whether the server keeps this process running. */
  #keepProcess(yes) {
    const { stdin, stdout, stderr } = this.#child;
    for (const each of [this.#child, stdin, stdout, stderr]) yes ? each.ref() : each.unref();
  }
}

// A variable LOCKWHEEL_<DIRECTIVE> sets an option. Only the test may set options.
function environment() {
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith("LOCKWHEEL_"));
  return Object.fromEntries(others);
}

module.exports = { ServerProcess };
