"use strict";
// Fault rules, and gates that hold requests.

/** The names of conditions, here and on the server. */
const CONDITIONS = {
  client: "CLIENT",
  clientId: "ID",
  command: "COMMAND",
  key: "KEY",
  nth: "NTH",
  times: "TIMES",
  probability: "PROBABILITY",
  // The server requires it after the probability.
  seed: "SEED",
};

function words(conditions) {
  for (const name of Object.keys(conditions)) {
    if (!Object.hasOwn(CONDITIONS, name)) throw new TypeError(`unknown condition ${name}`);
  }
  const given = Object.entries(CONDITIONS).filter(([name]) => conditions[name] !== undefined);
  return given.flatMap(([name, word]) => [word, conditions[name]]);
}

class Rule {
  #faults;

  constructor(faults, number) {
    this.#faults = faults;
    this.number = number;
  }

  async counts() {
    const rule = (await this.#faults.list()).find(({ id }) => id === this.number);
    if (!rule) throw new Error(`rule ${this.number} has been cleared`);
    return { matched: rule.matched, fired: rule.fired };
  }

  async clear() {
    await this.#faults.clear(this.number);
  }
}

class Gate {
  #call;

  constructor(call, number) {
    this.#call = call;
    this.number = number;
  }

  wait() {
    return this.#call("GATE", "AWAIT", this.number);
  }

  open() {
    return this.#call("GATE", "OPEN", this.number);
  }
}

class Faults {
  #call;

  constructor(call) {
    this.#call = (...args) => call("LOCKWHEEL", ...args);
  }

  async add(action, ...rest) {
    const conditions = typeof rest.at(-1) === "object" ? rest.pop() : {};
    const number = await this.#call("FAULT", "ADD", action, ...rest, ...words(conditions));
    return new Rule(this, number);
  }

  async gate(conditions = {}) {
    return new Gate(this.#call, await this.#call("GATE", "ADD", ...words(conditions)));
  }

  async list() {
    return JSON.parse(await this.#call("FAULT", "LIST"));
  }

  async gates() {
    return JSON.parse(await this.#call("GATE", "LIST"));
  }

  async clear(...number) {
    await this.#call("FAULT", "CLEAR", ...number);
  }

  failover({ lose = 0 } = {}) {
    return this.#call("FAILOVER", "LOSE", lose);
  }
}

module.exports = { Faults };
