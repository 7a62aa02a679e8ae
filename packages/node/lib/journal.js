"use strict";
// The journal of a server, and assertions on its locks.

/** A check that failed. Test frameworks print only its message and where it comes from. */
class CheckError extends Error {
  static {
    this.prototype.name = "CheckError";
  }
}

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
    return JSON.parse(await this.#call("JOURNAL", "HOLDERS"));
  }

  async knownLocks() {
    return JSON.parse(await this.#call("JOURNAL", "KNOWN"));
  }

  async declareLocks(pattern) {
    await this.#call("JOURNAL", "DECLARE", pattern);
  }

  async ignoreLocks(pattern) {
    await this.#call("JOURNAL", "IGNORE", pattern);
  }

  async lint(scope) {
    return JSON.parse(await this.#call("LINT", ...words(scope)));
  }

  async clear() {
    await this.#call("JOURNAL", "CLEAR");
  }

  async assert(check, scope) {
    const verdict = JSON.parse(await this.#call("CHECK", check, ...words(scope), "STORY"));
    if (!verdict.holds) throw new CheckError(verdict.text);
  }

  assertNoLockHeld(scope) {
    return this.assert("no-lock-held", scope);
  }

  assertNeverTwoHolders(scope) {
    return this.assert("never-two-holders", scope);
  }

  assertEveryLockHasALease(scope) {
    return this.assert("every-lock-has-a-lease", scope);
  }

  assertReleasedOnlyByOwner(scope) {
    return this.assert("released-only-by-owner", scope);
  }

  assertNotRefusedByOwnToken(scope) {
    return this.assert("refused-by-own-token", scope);
  }

  assertNoWaiterLost(scope) {
    return this.assert("no-waiter-lost", scope);
  }

  assertRenewedBeforeExpiry(scope) {
    return this.assert("renewed-before-expiry", scope);
  }
}

function words({ key, client, since, count, ...unknown } = {}) {
  for (const name of Object.keys(unknown)) {
    throw new TypeError(`unknown option '${name}'. Known: key, client, since, count`);
  }
  const conditions = Object.entries({ KEY: key, CLIENT: client, SINCE: since, COUNT: count });
  return conditions.filter(([, value]) => value !== undefined).flat();
}

module.exports = { CheckError, Journal };
