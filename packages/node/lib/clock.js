"use strict";
// The clock of a server. The server reads spans, such as "30s", and refuses numbers without a unit.

class Clock {
  #call;

  constructor(call) {
    this.#call = (...args) => call("LOCKWHEEL", "CLOCK", ...args);
  }

  async freeze() {
    await this.#call("FREEZE");
  }

  async run(rate = 1) {
    await this.#call("RUN", rate);
  }

  async advance(span) {
    await this.#call("ADVANCE", span);
  }

  async set(moment) {
    await this.#call("SET", Number(moment));
  }

  async jump(span) {
    await this.#call("JUMP", span);
  }

  async step(span) {
    await this.#call("STEP", span);
  }

  async now() {
    return JSON.parse(await this.#call());
  }
}

module.exports = { Clock };
