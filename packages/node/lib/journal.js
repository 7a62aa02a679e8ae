"use strict";
// The journal of a server, and assertions on its locks.

const { AssertionError } = require("node:assert");

class Journal {
  #call;

  constructor(call) {
    this.#call = (...args) => call("LOCKWHEEL", ...args);
  }

  async entries(selection) {
    return JSON.parse(await this.#call("JOURNAL", ...words(selection)));
  }

  story(selection) {
    return this.#call("JOURNAL", ...words(selection), "TEXT");
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
    const verdict = JSON.parse(await this.#call("CHECK", check, "STORY"));
    if (verdict.holds) return;
    const { text: message, sentence } = verdict;
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

function words({ since, key, count } = {}) {
  const conditions = Object.entries({ SINCE: since, KEY: key, COUNT: count });
  return conditions.filter(([, value]) => value !== undefined).flat();
}

module.exports = { Journal };
