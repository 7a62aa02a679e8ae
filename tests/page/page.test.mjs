// Tests of the page of locks: what it shows, how it is used without a mouse, and that it stays
// responsive with many locks. Times are printed and not checked: they depend on the machine.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { Server, openBrowser, startNodes } from "./server.mjs";

const LEASE_MS = 60_000;
const REDISSON_LOCK =
  new URL("../../server/compat/src/cases/scripts/redisson/lock.lua", import.meta.url);
const MANY = 100_000;
const WRITES_DOCS = process.env.LOCKWHEEL_WRITE_DOCS === "1";

let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser.close());

/** Opens a page; `problems` collects errors of scripts and refusals of the content policy. */
async function openPage(server, path = "/") {
  const page = await browser.context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(error.message));
  page.on("console", (it) => { if (it.type() === "error") page.problems.push(it.text()); });
  await page.goto(server.url + path);
  return page;
}

async function openLive(server) {
  const page = await openPage(server);
  await page.waitForSelector('#connection[data-state="live"]');
  return page;
}

/** Starts a server for a test, which ends with the test. */
async function start(context, ...options) {
  const server = await Server.start(...options);
  context.after(() => server.stop());
  return server;
}

const rowOf = (key) => `#rows .row:not([hidden])[data-key="${key}"]`;

/** Waits until a function is true in the page; returns the time of the page then. */
async function pageTime(page, condition, selector) {
  await page.waitForFunction(condition, selector, { polling: "raf" });
  return page.evaluate(() => Date.now());
}

test("locks appear, change and go while they are watched", async (context) => {
  const server = await start(context, "--enable-test-commands", "yes");
  const page = await openLive(server);
  const worker = await server.client("worker-1");
  const other = await server.client("worker-2");
  const times = {};
  const measure = async (name, action, selector, check) => {
    const begin = Date.now();
    assert.match(await action(), /^[+:$]/);
    times[name] = (await pageTime(page, check, selector)) - begin;
  };
  const take = (client) => client.call("SET", "order:7", "token", "NX", "PX", LEASE_MS);
  const row = rowOf("order:7");
  const isShown = (it) => document.querySelector(it) !== null;
  const isGone = (it) => document.querySelector(it) === null;
  await measure("acquired", () => take(worker), row, isShown);
  assert.match(await page.textContent(row), /worker-1/);
  await measure("refused", () => take(other), row, (it) => {
    const { children } = document.querySelector(it);
    return children[3].textContent.includes("worker-2") && children[7].textContent === "1";
  });
  await measure("renewed", () => worker.call("PEXPIRE", "order:7", LEASE_MS), row,
    (it) => document.querySelector(it).children[6].textContent === "1");
  await measure("released", () => worker.call("DEL", "order:7"), row, isGone);
  await take(worker);
  await page.waitForSelector(row);
  await measure("expired", () => other.call("LOCKWHEEL", "CLOCK", "ADVANCE", `${LEASE_MS}ms`),
    row, isGone);

  await take(worker);
  await page.click(row);
  await page.click("#release");
  await page.waitForSelector("#confirm[open]");
  await page.click('#confirm button[value="cancel"]');
  assert.equal(await worker.call("EXISTS", "order:7"), ":1");
  await page.click("#release");
  const begin = Date.now();
  await page.click('#confirm button[value="release"]');
  times["released by force"] = (await pageTime(page, isGone, row)) - begin;
  assert.equal(await worker.call("EXISTS", "order:7"), ":0");
  await page.waitForFunction(() => document.querySelector("#details-body").textContent
    .includes("forced"));
  const text = Object.entries(times).map(([name, ms]) => `${name} ${ms} ms`).join(", ");
  context.diagnostic(`times from a command until the page shows it: ${text}`);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("a lock of Redisson is shown with its holder and the clients that wait", async (context) => {
  const server = await start(context);
  const page = await openLive(server);
  const names = ["holder", "first", "second", "third"];
  const clients = await Promise.all(names.map((name) => server.client(name)));
  const script = readFileSync(REDISSON_LOCK, "utf8");
  const take = (client, thread) => client.call("EVAL", script, 1, "order:8", LEASE_MS,
    `8743c9c0-0795-4907-87fd-6c719a6b4586:${thread}`);
  assert.equal(await take(clients[0], 1), "$-1");
  for (const [at, client] of clients.slice(1).entries()) {
    assert.match(await take(client, at + 2), /^:/);
    assert.equal(await client.call("SUBSCRIBE", "redisson_lock__channel:{order:8}"), "*3");
  }
  const row = rowOf("order:8");
  await page.waitForFunction((it) => document.querySelector(it)?.children[3].textContent
    .startsWith("3"), row);
  assert.match(await page.textContent(row), /redisson-lock.*holder/s);
  await page.click(row);
  await page.waitForFunction(() => document.querySelector("#details-body").textContent
    .includes("waiting"));
  const details = await page.textContent("#details-body");
  const places = names.slice(1).map((name) => details.indexOf(`${name},`));
  assert.deepEqual(places, places.toSorted((a, b) => a - b), details);
  assert.ok(places[0] > 0, details);
  assert.ok(!details.includes("8743c9c0"), "an owner is shown");
  await page.click("#release");
  await page.click('#confirm button[value="release"]');
  await page.waitForFunction((it) => document.querySelector(it) === null, row);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("keys are shown as text, whatever they contain", async (context) => {
  const server = await start(context);
  const worker = await server.client("<i>name</i>");
  const key = "a/b?c#d%2F<img src=x>\u202e";
  await worker.call("SET", key, "token", "NX", "PX", LEASE_MS);
  const page = await openLive(server);
  await page.waitForSelector("#rows .row:not([hidden])");
  assert.match(await page.textContent("#rows .row .key"), /<img src=x>\\u\{202e\}/);
  assert.equal(await page.locator("#rows img, #rows i i").count(), 0);
  await page.click("#rows .row");
  await page.waitForSelector("#release:visible");
  await page.click("#release");
  await page.click('#confirm button[value="release"]');
  await page.waitForSelector("#empty:not([hidden])");
  assert.equal(await worker.call("EXISTS", key), ":0");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("page is used without a mouse", async (context) => {
  const server = await start(context);
  const worker = await server.client("worker");
  for (const key of ["a:1", "a:2", "b:1"]) {
    await worker.call("SET", key, "token", "NX", "PX", LEASE_MS);
  }
  const page = await openLive(server);
  await page.waitForSelector(rowOf("b:1"));
  const selected = () => page.getAttribute('#rows .row[aria-selected="true"]', "data-key");
  const keys = () => page.$$eval("#rows .row:not([hidden])", (all) => all
    .sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map((row) => row.dataset.key));
  await page.keyboard.press("/");
  await page.keyboard.type("A:");
  await page.waitForFunction((row) => !document.querySelector(row), rowOf("b:1"));
  assert.deepEqual(await keys(), ["a:1", "a:2"]);
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.waitForSelector(`${rowOf("a:2")}[aria-selected="true"]`);
  await page.keyboard.press("ArrowDown");
  assert.equal(await selected(), "a:2");
  const active = await page.getAttribute("#grid", "aria-activedescendant");
  assert.equal(await page.getAttribute(`#${active}`, "data-key"), "a:2");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#details:focus");
  assert.equal(await page.textContent("#details-title"), "a:2");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#details", { state: "hidden" });
  await page.waitForSelector("#grid:focus");
  await page.keyboard.press("/");
  await page.keyboard.press("Escape");
  await page.waitForSelector(rowOf("b:1"));
  await page.fill("#filter", "?:1");
  await page.waitForFunction((row) => !document.querySelector(row), rowOf("a:2"));
  assert.deepEqual(await keys(), ["a:1", "b:1"]);
  // Columns are sorted by their buttons, the next ones after the grid.
  await page.focus("#grid");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector('[aria-sort="descending"]');
  await page.waitForFunction((row) => document.querySelector(row).ariaRowIndex === "2",
    rowOf("b:1"));
  assert.deepEqual(await keys(), ["b:1", "a:1"]);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("header, title and empty page say which server this is", async (context) => {
  const server = await start(context);
  const page = await openLive(server);
  const place = `127.0.0.1:${server.port}`;
  await page.waitForFunction((text) => document.title === text, `${place} - Locks - Lockwheel`);
  assert.match(await page.textContent("#server"), new RegExp(`^${place} \u00b7 version [0-9.]+`));
  await page.waitForSelector("#empty-command:not([hidden])");
  const words = (await page.textContent("#empty-command")).split(" ");
  assert.deepEqual(words.slice(0, 4), ["lockwheel", "cli", "-p", `${server.port}`]);
  await assertAccessible(page, "empty");
  // The command takes a lock.
  const worker = await server.client();
  assert.match(await worker.call(...words.slice(4)), /^[*%]/);
  await page.waitForSelector(rowOf("order:7"));
  const toggle = await page.textContent("#theme");
  await page.click("#theme");
  assert.notEqual(await page.textContent("#theme"), toggle);
  await page.click("#theme");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("details of a native lock have its grant, for users that may see it", async (context) => {
  const server = await start(context);
  const worker = await server.client();
  await worker.call("LOCK.ACQUIRE", "queue:1", "me", "TTL", LEASE_MS, "META", "host-7");
  const page = await openLive(server);
  await page.waitForSelector(rowOf("queue:1"));
  assert.match(await page.textContent(rowOf("queue:1")), /me.*127\.0\.0\.1/s);
  await page.click(rowOf("queue:1"));
  await page.waitForSelector("#details .history");
  assert.match(await page.textContent("#details-body"), /owner me.*fencing token \d.*META host-7/s);
  worker.socket.destroy();
  const other = await server.client();
  await other.call("LOCK.RENEW", "queue:1", "me", "TTL", LEASE_MS);
  await other.call("SET", "lock:2", "token", "NX");
  await page.waitForSelector(`${rowOf("lock:2")} .lease .alarm`);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("refused attempts are one row of the history", async (context) => {
  const server = await start(context);
  const [worker, other] = [await server.client("worker-1"), await server.client("worker-2")];
  const take = (client) => client.call("SET", "order:9", "token", "NX", "PX", LEASE_MS);
  await take(worker);
  for (let at = 0; at < 5; at++) await take(other);
  const page = await openLive(server);
  await page.click(rowOf("order:9"));
  await page.waitForSelector("#details .history");
  assert.equal(await page.locator("#details .history li").count(), 2);
  const latest = await page.textContent("#details .history li:first-child");
  assert.match(latest, /refused5 times: worker-2/);
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("page without a connection keeps what it knew, with its time", async (context) => {
  const server = await start(context);
  const worker = await server.client("worker");
  await worker.call("SET", "order:7", "token", "NX", "PX", LEASE_MS);
  const page = await openLive(server);
  await page.waitForSelector(rowOf("order:7"));
  await page.waitForFunction(() => document.querySelector("#count-locks").textContent === "1");
  server.stop();
  await page.waitForSelector("#lost:not([hidden])");
  await page.waitForFunction(() => document.querySelector("#lost").textContent
    .includes("the server does not reply"));
  const reason = /What is shown is the state of \d\d:\d\d:\d\d\./;
  assert.match(await page.textContent("#lost"), reason);
  assert.equal(await page.isVisible(rowOf("order:7")), true);
  await page.fill("#filter", "none");
  await page.waitForSelector("#empty:not([hidden])");
  assert.doesNotMatch(await page.textContent("#empty"), /is held/);
  await page.fill("#filter", "");
  await page.waitForSelector(rowOf("order:7"));
  await assertAccessible(page, "without a connection");
  await page.close();
});

test("page of a follower names the leader, and one without a leader says so", async (context) => {
  const nodes = await startNodes();
  context.after(() => nodes.stop());
  const worker = await nodes.leader.client("worker");
  await worker.call("LOCK.ACQUIRE", "order:7", "me", "TTL", LEASE_MS);
  const page = await openLive(nodes.follower);
  const leader = `Follower of 127.0.0.1:${nodes.leader.port}`;
  await page.waitForFunction((text) => document.querySelector("#node").textContent
    .startsWith(text), leader);
  await page.waitForSelector(rowOf("order:7"));
  assert.match(await page.textContent("#server"), /follower, 2 nodes/);
  await worker.call("LOCK.ACQUIRE", "order:8", "me", "TTL", LEASE_MS);
  await page.waitForSelector(rowOf("order:8"));
  await page.click(rowOf("order:8"));
  await page.waitForSelector("text=are shown at the leader");
  assert.equal(await page.isVisible("#release"), false);
  await assertAccessible(page, "follower");
  assert.deepEqual(page.problems, []);
  nodes.leader.stop();
  await page.waitForFunction(() => document.querySelector("#lost").textContent
    .includes("no leader: more than half of the nodes must be in contact"));
  await page.waitForFunction(() => document.querySelector("#server").textContent
    .includes("no leader"));
  assert.equal(await page.isVisible(rowOf("order:8")), true);
  await assertAccessible(page, "no leader");
  await page.close();
});

test("on a phone each lock is a card, and nothing is beside the screen", async (context) => {
  const server = await start(context);
  await fill(server);
  const page = await openLive(server);
  await page.setViewportSize({ width: 390, height: 800 });
  const row = rowOf("order:1042");
  await page.waitForSelector(row);
  const long = "order:".padEnd(200, "x");
  await (await server.client("worker")).call("SET", `${long}:end`, "token", "NX", "PX", LEASE_MS);
  await page.fill("#filter", ":end");
  await page.waitForSelector(rowOf(`${long}:end`));
  assert.equal(await page.textContent(`${rowOf(`${long}:end`)} .key .end`), "xxxxxxxx:end");
  await page.fill("#filter", "order:1042");
  await page.waitForFunction((it) => document.querySelector(it)?.ariaRowIndex === "2", row);
  const visible = await page.$$eval(`${row} > div`, (all) =>
    all.map((it) => it.checkVisibility()));
  // Key, holder, waiting clients and lease.
  assert.deepEqual(visible, [true, false, true, true, false, true, false, false]);
  const [width, wide] = await page.evaluate(() => [innerWidth, Math.max(
    document.documentElement.scrollWidth, document.querySelector("#grid").scrollWidth)]);
  assert.ok(wide <= width, `${wide} px on a screen of ${width}`);
  await assertAccessible(page, "cards");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("page needs a login when the server has a password", async (context) => {
  const server = await start(context, "--requirepass", "secret");
  const page = await openPage(server);
  assert.equal(new URL(page.url()).pathname, "/login");
  await assertAccessible(page, "the form");
  const logIn = async (password) => {
    await page.fill("#user", "default");
    await page.fill("#password", password);
    await page.keyboard.press("Enter");
  };
  await logIn("wrong");
  await page.waitForSelector("text=wrong user or password");
  page.problems.length = 0;
  await logIn("secret");
  await page.waitForSelector('#connection[data-state="live"]');
  await page.click("#logout");
  await page.waitForSelector("#password");
  await page.goto(server.url);
  assert.equal(new URL(page.url()).pathname, "/login");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("user sees the locks of the permitted keys, and no button to release them", async (context) => {
  const server = await start(context);
  const worker = await server.client("worker");
  await worker.call("ACL", "SETUSER", "viewer", "on", ">secret", "%R~a:*", "+lockwheel|locks");
  for (const key of ["a:1", "b:1"]) {
    await worker.call("SET", key, "token", "NX", "PX", LEASE_MS);
  }
  const page = await openPage(server, "/login");
  await page.fill("#user", "viewer");
  await page.fill("#password", "secret");
  await page.keyboard.press("Enter");
  await page.waitForSelector(rowOf("a:1"));
  await page.waitForFunction(() => document.querySelector("#count-locks").textContent === "1");
  await page.click(rowOf("a:1"));
  await page.waitForSelector("#details .history");
  assert.equal(await page.isVisible("#release"), false);
  await worker.call("SET", "b:2", "token", "NX", "PX", LEASE_MS);
  await worker.call("SET", "a:2", "token", "NX", "PX", LEASE_MS);
  await page.waitForSelector(rowOf("a:2"));
  assert.equal(await page.locator(rowOf("b:2")).count(), 0);
  assert.deepEqual(page.problems, []);
  await page.context().clearCookies();
  await page.close();
});

test("page stays responsive with 100,000 locks", async (context) => {
  const server = await start(context);
  const worker = await server.client("worker");
  const replies = [];
  for (let at = 0; at < MANY; at++) {
    const key = `lock:${`${at}`.padStart(6, "0")}`;
    replies.push(worker.call("SET", key, `token-${at}`, "NX", "PX", 3_600_000));
  }
  await Promise.all(replies);
  await browser.context.addInitScript(() => {
    globalThis.longTasks = [];
    new PerformanceObserver((list) => globalThis.longTasks.push(
      ...list.getEntries().map((it) => Math.round(it.duration))))
      .observe({ type: "longtask", buffered: true });
  });
  const tasks = async (name) => {
    const found = await page.evaluate(() => globalThis.longTasks.splice(0));
    const longest = Math.max(0, ...found);
    context.diagnostic(`${name}: ${found.length} tasks over 50 ms, the longest ${longest} ms`);
  };
  const begin = Date.now();
  const page = await openLive(server);
  await page.waitForFunction((count) => document.querySelector("#count-locks").textContent
    === count, "100,000");
  context.diagnostic(`read in ${Date.now() - begin} ms`);
  await tasks("reading");
  // Long tasks are found.
  await page.evaluate(() => setTimeout(() => {
    for (const begin = performance.now(); performance.now() - begin < 150;);
  }));
  await page.waitForFunction(() => globalThis.longTasks.some((it) => it >= 150));
  await page.evaluate(() => globalThis.longTasks.splice(0));

  const renewing = (async () => {
    for (let at = 0; at < 2000; at++) {
      await worker.call("PEXPIRE", `lock:${`${at * 50}`.padStart(6, "0")}`, 3_600_000);
    }
  })();
  await page.evaluate(async () => {
    const grid = document.querySelector("#grid");
    for (let step = 0; step <= 200; step++) {
      grid.scrollTop = (grid.scrollHeight * step) / 200;
      await new Promise(requestAnimationFrame);
    }
  });
  await renewing;
  await tasks("scrolling through all, with 2,000 renewals");
  await page.waitForSelector(rowOf("lock:099999"));
  const drawn = await page.locator("#rows .row").count();
  assert.ok(drawn < 60, `${drawn} rows in the document`);

  await page.click('[data-sort="renewals"]');
  await page.waitForFunction(() => document.querySelector('[data-key="lock:000000"]')
    ?.ariaRowIndex === "2" || document.querySelector("#grid").scrollTop > 0);
  await page.evaluate(() => { document.querySelector("#grid").scrollTop = 0; });
  await page.waitForSelector(`${rowOf("lock:000000")}[aria-rowindex="2"]`);
  await tasks("sorting");
  await page.fill("#filter", "lock:0500*");
  await page.waitForFunction(() => document.querySelector("#count-locks").textContent
    .startsWith("100 of"));
  await tasks("filtering");
  await worker.call("DEL", "lock:050000");
  await page.waitForFunction(() => document.querySelector("#count-locks").textContent
    === "99 of 99,999");
  assert.deepEqual(page.problems, []);
  await page.close();
});

test("page has no violations of accessibility rules, in both colour schemes", async (context) => {
  const server = await start(context);
  await fill(server);
  for (const scheme of ["light", "dark"]) {
    const page = await openLive(server);
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForSelector(rowOf("order:1042"));
    await page.waitForTimeout(1300);
    await assertAccessible(page, `${scheme} list`);
    await page.focus("#grid");
    await page.click(rowOf("order:1042"));
    await page.waitForSelector("#release:visible");
    await assertAccessible(page, `${scheme} details`);
    if (WRITES_DOCS) {
      const path = new URL(`../../docs/locks-${scheme}.png`, import.meta.url).pathname;
      await page.screenshot({ path });
    }
    await page.click("#release");
    await assertAccessible(page, `${scheme} question`);
    await page.keyboard.press("Escape");
    await page.setViewportSize({ width: 420, height: 800 });
    await assertAccessible(page, `${scheme} narrow`);
    await page.click("#close");
    assert.deepEqual(page.problems, []);
    await page.close();
  }
});

async function assertAccessible(page, name) {
  // The content policy of the page forbids other scripts; the debugger may add this one.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
  }));
  const found = violations.flatMap((it) => it.nodes.map((node) =>
    `${it.id}: ${it.help}: ${node.html} ${node.any.map((check) => check.message).join()}`));
  assert.deepEqual(found, [], name);
}

/** Locks like those of a shop. */
async function fill(server) {
  const take = (client, key, ms) => client.call("SET", key, `${key}-token`, "NX", "PX", ms);
  const names = ["checkout-1", "checkout-2", "billing-1", "mailer", "reports"];
  const clients = await Promise.all(names.map((name) => server.client(name)));
  for (let at = 0; at < 14; at++) {
    await take(clients[at % 3], `order:${1040 + at}`, 20_000 + 3000 * at);
  }
  await take(clients[2], "invoice:2026-11", LEASE_MS);
  await take(clients[3], "mail:digest", LEASE_MS);
  await clients[4].call("SET", "report:nightly", "reports-token", "NX", "PX", 120_000);
  await take(clients[3], "order:1042", LEASE_MS);
  await take(clients[4], "order:1042", LEASE_MS);
  await take(clients[4], "invoice:2026-11", LEASE_MS);
  await clients[2].call("PEXPIRE", "order:1042", 30_000);
  await clients[2].call("PEXPIRE", "invoice:2026-11", 45_000);
  await clients[3].call("PEXPIRE", "mail:digest", LEASE_MS);
}
