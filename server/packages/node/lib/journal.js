"use strict";
// What has happened to locks, and assertions on it.

const { AssertionError } = require("node:assert");

class Journal {
  #call;

  constructor(call) {
    this.#call = (...args) => call("LEASEHOLD", ...args);
  }

  async entries({ since, key, count } = {}) {
    const conditions = Object.entries({ SINCE: since, KEY: key, COUNT: count });
    const given = conditions.filter(([, value]) => value !== undefined);
    return JSON.parse(await this.#call("JOURNAL", ...given.flat()));
  }

  async locks() {
    return JSON.parse(await this.#call("LOCKS"));
  }

  async lint() {
    return JSON.parse(await this.#call("LINT"));
  }

  async clear() {
    await this.#call("JOURNAL", "CLEAR");
  }

  async assert(check) {
    const { holds, sentence, story } = JSON.parse(await this.#call("CHECK", check, "STORY"));
    if (holds) return;
    const message = [`CHECK ${check}: ${sentence}`, ...story.map(line)].join("\n");
    throw new AssertionError({ message, actual: sentence, expected: check, operator: "check" });
  }

  assertNoLockHeld() {
    return this.assert("no-lock-held");
  }

  assertNeverTwoHolders() {
    return this.assert("never-two-holders");
  }

  assertEveryLockHasALease() {
    return this.assert("every-lock-has-a-lease");
  }

  assertReleasedOnlyByOwner() {
    return this.assert("released-only-by-owner");
  }
}

/** An entry of a story in one line, with the milliseconds since the first. */
function line(entry, _index, story) {
  const { seq, time_ms, client, name, event, keys, ...details } = entry;
  const who = client === 0 ? "the clock" : `client ${client}${name ? ` '${name}'` : ""}`;
  const { argv, reply, script } = details;
  const what = argv
    ? `${script ? "(script) " : ""}${argv.join(" ")} -> ${reply}`
    : `${event} '${keys[0]}' ${JSON.stringify(details)}`;
  return `  +${time_ms - story[0].time_ms} ms #${seq} ${who}: ${what}`;
}

module.exports = { Journal };
