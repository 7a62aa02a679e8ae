// A test of the types: TypeScript checks it and does not run it. It has correct and wrong calls.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import {
  type Check,
  type Entry,
  type Gate,
  type ListedRule,
  type Moment,
  type Reply,
  ReplyError,
  type Rule,
  Server,
  serverBetween,
  start,
} from "lockwheel";

const check: Check[] = ["no-lock-held"];
const server: Server = serverBetween(beforeEach, afterEach, { frozen: true, check });

test("what is right", async () => {
  const clockStart = new Date("2030-01-01");
  await using another = await start({ options: ["--databases", 3], clockStart });
  await another.clock.set(new Date("2030-01-02"));
  const reply: Reply = await another.call("SET", Buffer.from("lock"), "token", "PX", 30_000);
  assert.ok(!(reply instanceof ReplyError));
  await server.clock.advance("1h30m");
  const { now_ms }: Moment = await server.clock.now();
  const rule: Rule = await server.faults.add("delay", "2s", { command: "set", nth: 1 });
  await server.faults.add("close");
  await server.faults.add("error", "LOADING", { probability: 0.5, seed: 7 });
  const gate: Gate = await server.faults.gate({ clientId: 7 });
  const counts: number = (await rule.counts()).fired + (await gate.wait()) + now_ms;
  const [entry]: Entry[] = await server.journal.entries({ key: "lock" });
  await server.journal.assertNoLockHeld({ key: "lock:*", client: "worker", since: 17 });
  const [listed]: ListedRule[] = await server.faults.list();
  const numbers: (number | undefined)[] = [listed?.delay_ms, listed?.nth, entry?.count];
  const lease: number | null | undefined = entry?.lease_ms;
  const texts: (string | undefined)[] = [entry?.owner, entry?.event, listed?.command];
  return void [counts, numbers, lease, texts, server.url.length, server.port.toFixed()];
});

export async function wrong(): Promise<void> {
  // @ts-expect-error: a span has a unit.
  await server.clock.advance(30);
  // @ts-expect-error: a span has a unit that there is.
  await server.clock.advance("30 seconds");
  // @ts-expect-error: there is no such action.
  await server.faults.add("break");
  // @ts-expect-error: a delay is of some span.
  await server.faults.add("delay", { command: "set" });
  // @ts-expect-error: there is no such condition.
  await server.faults.gate({ comand: "del" });
  // @ts-expect-error: there is no such check.
  await server.journal.assert("no-locks-held");
  // @ts-expect-error: there is no such part of a scope.
  await server.journal.assertNoLockHeld({ keys: "lock:*" });
  // @ts-expect-error: these are patterns.
  await start({ lockKeys: "job:*" });
  // @ts-expect-error: there is no such option.
  await start({ freeze: true });
}
