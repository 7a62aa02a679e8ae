// The page of locks: reads all locks once, then applies events as they happen. Only the visible
// rows are in the document.
"use strict";

const ROW_HEIGHT_PX = 46;
/** Rows beyond the visible ones, so that scrolling shows no gap. */
const ROWS_BEYOND = 8;
/** Locks that are sorted or filtered before the browser may do other work. */
const CHUNK_LENGTH = 4000;
/** Changes that are inserted one by one; more are merged with all locks. */
const INSERTED_ONE_BY_ONE_MAX = 8;
const MINUTE_MS = 60_000;
const RETRY_MS = 1000;
const DETAILS_DELAY_MS = 150;
const FRESH_MS = 1200;
const FIGURES_MS = 500;
const NODE_MS = 2000;
/** A refused client waits as long as it tries again within this time; the server says the same. */
const RETRY_WAIT_MS = 5000;

const byId = (id) => document.getElementById(id);
const grid = byId("grid");
const rows = byId("rows");
const filterInput = byId("filter");
const details = byId("details");
const numbers = new Intl.NumberFormat("en");

/** The locks by their id: database and key. */
const locks = new Map();
/** The locks that match the filter, in order. */
let view = [];
let sort = { column: "key", factor: 1 };
let matches = () => true;
let session = { user: "", token: null, is_login: false };
let selected = null;
let opened = null;
/** Rises with each change of order or filter, so that an older one can end. */
let generation = 0;
let source = null;

// --- Locks ---

const idOf = (it) => `${it.database}:${it.key_encoded ?? encodeURIComponent(it.key)}`;
const pathOf = (lock, end = "") => `/locks/${lock.key_encoded ?? encodeURIComponent(lock.key)}${end}`;

/** A text of a client, in which no character is invisible or changes the direction. */
function shown(text) {
  const hidden = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
  return text.replace(hidden, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const holderText = (holder) =>
  shown(holder.name || holder.address || `client ${holder.client} (disconnected)`);

/** Prepares a lock of a reply: what it is sorted and filtered by, and its end on this clock. */
function prepared(lock, generationOfRead) {
  const now = performance.now();
  const old = locks.get(lock.id = idOf(lock));
  lock.read = generationOfRead;
  lock.readAt = now;
  lock.deadline = lock.lease_ms === null ? Infinity : now + lock.lease_ms;
  lock.text = [lock.key, ...lock.holders.flatMap((it) => [it.name, it.address])]
    .join("\n").toLowerCase();
  const first = lock.holders[0];
  lock.order = {
    key: lock.key,
    kind: lock.kind,
    holder: first ? first.name || first.address : "",
    waiters: lock.waiters.length,
    since: lock.since_ms,
    lease: lock.deadline,
    renewals: lock.renewals,
    refusals: lock.refusals,
  };
  const isNew = !old || old.since_ms !== lock.since_ms;
  lock.freshUntil = isNew && isLoaded ? now + FRESH_MS : old?.freshUntil ?? 0;
  return lock;
}

/** The order of two locks: by the selected column, then by the key. */
function compare(one, other) {
  const { column, factor } = sort;
  const [a, b] = [one.order[column], other.order[column]];
  if (a !== b) return a < b ? -factor : factor;
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

/** Where a lock is in the view, or would be. */
function placeOf(lock) {
  let [low, high] = [0, view.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(view[middle], lock) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

function merged(one, other) {
  const all = new Array(one.length + other.length);
  let [a, b] = [0, 0];
  for (let at = 0; at < all.length; at++) {
    const takesFirst = b >= other.length || (a < one.length && compare(one[a], other[b]) <= 0);
    all[at] = takesFirst ? one[a++] : other[b++];
  }
  return all;
}

/** Replaces locks by their new state, and removes others; keeps the view in order. */
function change(changed, removed) {
  const old = [];
  for (const id of [...removed, ...changed.map((lock) => lock.id)]) {
    const lock = locks.get(id);
    if (!lock) continue;
    old.push(lock);
    locks.delete(id);
  }
  for (const lock of changed) locks.set(lock.id, lock);
  const added = changed.filter(matches);
  if (old.length + added.length <= INSERTED_ONE_BY_ONE_MAX) {
    for (const lock of old) {
      const place = placeOf(lock);
      if (view[place] === lock) view.splice(place, 1);
    }
    for (const lock of added) view.splice(placeOf(lock), 0, lock);
  } else {
    const gone = new Set(old);
    view = merged(gone.size ? view.filter((it) => !gone.has(it)) : view, added.sort(compare));
  }
  requestRender();
}

/** Lets the browser do other work. */
const pause = () => new Promise((resolve) => {
  const channel = new MessageChannel();
  channel.port1.onmessage = resolve;
  channel.port2.postMessage(null);
});

/** Builds the view anew, in parts. Locks that change meanwhile wait: see `inTurn`. */
async function rebuild(own) {
  const all = [...locks.values()];
  let parts = [];
  for (let at = 0; at < all.length; at += CHUNK_LENGTH) {
    parts.push(all.slice(at, at + CHUNK_LENGTH).filter(matches).sort(compare));
    await pause();
    if (own !== generation) return;
  }
  while (parts.length > 1) {
    const next = [];
    for (let at = 0; at < parts.length; at += 2) {
      next.push(at + 1 < parts.length ? merged(parts[at], parts[at + 1]) : parts[at]);
      await pause();
      if (own !== generation) return;
    }
    parts = next;
  }
  view = parts[0] ?? [];
  requestRender();
}

let turn = Promise.resolve();
/** Runs one change of the view after the other. */
const inTurn = (action) => (turn = turn.then(action).catch((error) => showProblem(`${error}`)));

function orderAnew() {
  const own = ++generation;
  inTurn(() => (own === generation ? rebuild(own) : undefined));
}

// --- Filter and order ---

/** Whether a text matches a pattern with `*` and `?`, without trying all ways. */
function matchesPattern(pattern, text) {
  let [at, place, star, mark] = [0, 0, -1, 0];
  while (place < text.length) {
    if (pattern[at] === "*") {
      star = at++;
      mark = place;
    } else if (at < pattern.length && (pattern[at] === "?" || pattern[at] === text[place])) {
      at++;
      place++;
    } else if (star >= 0) {
      at = star + 1;
      place = ++mark;
    } else {
      return false;
    }
  }
  while (pattern[at] === "*") at++;
  return at === pattern.length;
}

function setFilter(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) matches = () => true;
  else if (/[*?]/.test(wanted)) matches = (it) => matchesPattern(wanted, it.key.toLowerCase());
  else matches = (it) => it.text.includes(wanted);
  orderAnew();
  grid.scrollTop = 0;
}

function sortBy(column) {
  // Numbers are more interesting from the greatest on.
  const first = ["waiters", "renewals", "refusals"].includes(column) ? -1 : 1;
  const factor = sort.column === column ? -sort.factor : first;
  sort = { column, factor };
  showSort();
  orderAnew();
}

function showSort() {
  for (const button of grid.querySelectorAll("[data-sort]")) {
    const direction = sort.factor > 0 ? "ascending" : "descending";
    if (button.dataset.sort === sort.column) button.parentNode.setAttribute("aria-sort", direction);
    else button.parentNode.removeAttribute("aria-sort");
  }
}

// --- Server ---

async function request(path, options) {
  const response = await fetch(path, options);
  if (response.status === 401) {
    location.assign("/login");
    return new Promise(() => {});
  }
  const body = response.status === 204 ? {} : await response.json();
  if (!response.ok) throw new Error(body.error ?? `the server replied ${response.status}`);
  return body;
}

let isLoaded = false;
let reads = 0;

/** Reads all locks, then follows the events. */
async function readAll() {
  source?.close();
  source = null;
  const own = ++reads;
  try {
    let [cursor, sequence] = ["0", null];
    const pending = [];
    do {
      const part = await request(`/locks?count=1000&cursor=${encodeURIComponent(cursor)}`);
      cursor = part.cursor;
      sequence ??= part.sequence;
      pending.push(...part.locks.map((lock) => prepared(lock, own)));
      // The more locks there are, the longer a merge takes, and the fewer are made.
      if (cursor === "0" || pending.length >= Math.min(CHUNK_LENGTH, locks.size / 4)) {
        const read = pending.splice(0);
        await inTurn(() => change(read, []));
      }
    } while (cursor !== "0");
    const gone = [...locks.values()].filter((lock) => lock.read !== own).map((lock) => lock.id);
    await inTurn(() => change([], gone));
    isLoaded = true;
    hideProblem();
    follow(sequence);
  } catch (error) {
    showState("waiting", "Waiting");
    showProblem(`Locks cannot be read: ${error.message}`);
    setTimeout(readAll, RETRY_MS * 3);
  }
  requestRender();
}

function follow(sequence) {
  source = new EventSource(`/events?since=${sequence}`);
  source.onopen = () => showState("live", "Live");
  source.onmessage = (message) => {
    const own = reads;
    const news = JSON.parse(message.data);
    inTurn(() => (own === reads ? apply(news) : undefined));
  };
  source.onerror = () => {
    showState("waiting", "Reconnecting");
    // The browser connects again by itself, unless the reply was an error.
    if (source.readyState === EventSource.CLOSED) setTimeout(readAll, RETRY_MS);
  };
}

function apply(news) {
  if (news.missed || news.events.some((event) => event.key === "" && event.event === "removed")) {
    readAll();
    return;
  }
  const changed = news.locks.map((lock) => prepared(lock, reads));
  const present = new Set(changed.map((lock) => lock.id));
  const named = new Set(news.events.map(idOf));
  change(changed, [...named].filter((id) => !present.has(id)));
  if (opened && named.has(opened.id)) requestDetails();
}

// --- Rows ---

const pool = [];

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function newRow() {
  const line = (kind) => element("div", `line ${kind}`);
  const bar = element("div", "bar", element("i"));
  const row = element("div", "row");
  const parts = {
    key: line("key"), database: line("second"), kind: line(""), confidence: line("second"),
    holder: line(""), address: line("second"), waiters: line(""), next: line("second"),
    since: line("number"), left: line(""), bar, fill: bar.firstChild, renewals: line("number"),
    refusals: line("number"),
  };
  const cells = [
    [parts.key, parts.database], [parts.kind, parts.confidence], [parts.holder, parts.address],
    [parts.waiters, parts.next], [parts.since], [parts.left, bar], [parts.renewals],
    [parts.refusals],
  ];
  for (const contents of cells) {
    const cell = element("div", contents.includes(bar) ? "lease" : "", ...contents);
    cell.setAttribute("role", "gridcell");
    row.append(cell);
  }
  row.setAttribute("role", "row");
  row.id = `row-${pool.length}`;
  row.parts = parts;
  row.addEventListener("click", () => {
    select(row.lock);
    openDetails(row.lock);
  });
  return row;
}

/** A number; one of interest is emphasized, and 0 is not. */
function setNumber(node, number, isOfInterest = false) {
  setText(node, numbers.format(number));
  node.classList.toggle("zero", number === 0);
  node.classList.toggle("some", isOfInterest && number > 0);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fillRow(row, lock, place) {
  const { parts } = row;
  const top = `translateY(${place * ROW_HEIGHT_PX}px)`;
  if (row.style.transform !== top) row.style.transform = top;
  row.setAttribute("aria-rowindex", place + 2);
  row.setAttribute("aria-selected", lock.id === selected?.id);
  if (row.lock === lock) return;
  row.lock = lock;
  row.dataset.key = lock.key;
  row.classList.toggle("fresh", lock.freshUntil > performance.now());
  const [first, ...others] = lock.holders;
  const more = others.length ? ` and ${others.length} more` : "";
  setText(parts.key, shown(lock.key));
  parts.key.title = shown(lock.key);
  setText(parts.database, lock.database ? `database ${lock.database}` : "");
  setText(parts.kind, lock.kind);
  setText(parts.confidence, lock.confidence === "certain" ? "" : lock.confidence);
  setText(parts.holder, first ? holderText(first) + more : "none");
  setText(parts.address, first?.name ? `${shown(first.address)} \u00b7 ${shown(first.user)}` : "");
  setNumber(parts.renewals, lock.renewals);
}

/** A span in two units at most, such as 4 min 12 s. */
function span(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  const [size, name, part, partName] = units.find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)} ${name} ${Math.floor((seconds % size) / part)} ${partName}`;
}

const leaseText = (left) => (left < 10_000 ? `${(left / 1000).toFixed(1)} s` : span(left));

/** Shows what is left of a lease. */
function fillLease(lock, text, bar, fill) {
  if (lock.lease_ms === null) {
    setText(text, "no lease");
    bar.dataset.state = "none";
    return;
  }
  const left = Math.max(0, lock.deadline - performance.now());
  const part = Math.min(1, left / Math.max(1, lock.lease_full_ms ?? lock.lease_ms));
  setText(text, leaseText(left));
  bar.dataset.state = part > 0.3 ? "long" : part > 0.1 ? "short" : "over";
  fill.style.transform = `scaleX(${part.toFixed(4)})`;
}

/** Refused attempts in the last minute; the server counts again when one is refused. */
const refusalsOf = (lock) =>
  (performance.now() - lock.readAt < MINUTE_MS ? lock.refusals : 0);

/** The clients that wait for a lock now. */
function waitingFor(lock) {
  const isRecent = performance.now() - lock.readAt < RETRY_WAIT_MS;
  return isRecent ? lock.waiters : lock.waiters.filter((it) => it.how !== "refused");
}

/** The difference of the server's clock and this one is small: both are times of the day. */
const heldFor = (lock) => span(Math.max(0, Date.now() - lock.since_ms));

let isRenderRequested = false;
function requestRender() {
  if (isRenderRequested) return;
  isRenderRequested = true;
  requestAnimationFrame(render);
}

function render() {
  isRenderRequested = false;
  rows.style.height = `${view.length * ROW_HEIGHT_PX}px`;
  grid.setAttribute("aria-rowcount", view.length + 1);
  const above = Math.floor(grid.scrollTop / ROW_HEIGHT_PX) - ROWS_BEYOND;
  const start = Math.max(0, Math.min(above, view.length));
  const count = Math.ceil(grid.clientHeight / ROW_HEIGHT_PX) + 2 * ROWS_BEYOND;
  const end = Math.min(view.length, start + count);
  while (pool.length < count) {
    const row = newRow();
    pool.push(row);
    rows.append(row);
  }
  let active = null;
  for (const row of pool) row.isUsed = false;
  for (let place = start; place < end; place++) {
    // The same place has the same row while the page scrolls.
    const row = pool[place % pool.length];
    row.isUsed = true;
    row.hidden = false;
    fillRow(row, view[place], place);
    if (view[place].id === selected?.id) active = row.id;
  }
  for (const row of pool) if (!row.isUsed) row.hidden = true;
  if (active) grid.setAttribute("aria-activedescendant", active);
  else grid.removeAttribute("aria-activedescendant");
  const empty = byId("empty");
  empty.hidden = view.length > 0;
  setText(empty, emptyText());
  showTimes();
}

function emptyText() {
  if (!isLoaded) return "Reading the locks";
  return locks.size ? "No lock matches the filter" : "No lock is held";
}

function showTimes() {
  for (const row of pool) {
    if (row.hidden || !row.lock) continue;
    const { lock, parts } = row;
    fillLease(lock, parts.left, parts.bar, parts.fill);
    setText(parts.since, heldFor(lock));
    setNumber(parts.refusals, refusalsOf(lock), true);
    const waiting = waitingFor(lock);
    setNumber(parts.waiters, waiting.length, true);
    setText(parts.next, waiting.length ? `next: ${holderText(waiting[0])}` : "");
  }
  if (opened?.lock && openedParts) {
    const { left, bar, fill, since } = openedParts;
    fillLease(opened.lock, left, bar, fill);
    setText(since, heldFor(opened.lock));
  }
}

function showFigures() {
  let [waiting, refused] = [0, 0];
  for (const lock of locks.values()) {
    waiting += waitingFor(lock).length;
    refused += refusalsOf(lock);
  }
  const shownLocks = view.length === locks.size ? "" : `${numbers.format(view.length)} of `;
  setText(byId("count-locks"), shownLocks + numbers.format(locks.size));
  setText(byId("count-waiters"), numbers.format(waiting));
  setText(byId("count-refusals"), numbers.format(refused));
}

/** Moves the bars: at each frame, or each second if the user prefers less motion. */
function animate() {
  showTimes();
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (isStill) setTimeout(animate, 1000);
  else requestAnimationFrame(animate);
}

// --- Selection ---

function select(lock) {
  selected = lock;
  requestRender();
}

/** Selects another row, counted from the selected one, and scrolls to it. */
function move(difference) {
  if (!view.length) return;
  const current = selected && locks.get(selected.id);
  const from = current ? placeOf(current) : difference > 0 ? -1 : 0;
  const place = Math.max(0, Math.min(view.length - 1, from + difference));
  const headHeight = grid.firstElementChild.offsetHeight;
  const [top, height] = [place * ROW_HEIGHT_PX, grid.clientHeight - headHeight];
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + ROW_HEIGHT_PX > grid.scrollTop + height) {
    grid.scrollTop = top + ROW_HEIGHT_PX - height;
  }
  select(view[place]);
}

function onGridKey(event) {
  if (event.target !== grid) return;
  const page = Math.max(1, Math.floor(grid.clientHeight / ROW_HEIGHT_PX) - 2);
  const moves = {
    ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
  };
  if (event.key in moves) move(moves[event.key]);
  else if (event.key === "Enter" && selected) openDetails(selected, true);
  else return;
  event.preventDefault();
}

function onKey(event) {
  if (byId("confirm").open) return;
  const isText = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !isText && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    filterInput.focus();
    filterInput.select();
  } else if (event.key === "Escape" && !details.hidden) {
    closeDetails();
  } else if (event.key === "Escape" && isText) {
    filterInput.value = "";
    setFilter("");
    grid.focus();
  }
}

// --- Details ---

let detailsTimer = 0;
let openedParts = null;

function openDetails(lock, takesFocus = false) {
  opened = { ...lock, lock: null };
  setText(byId("details-title"), shown(lock.key));
  byId("details-body").replaceChildren();
  openedParts = null;
  document.querySelector(".actions").hidden = true;
  details.hidden = false;
  if (takesFocus) details.focus();
  readDetails();
  requestRender();
}

function closeDetails() {
  opened = null;
  openedParts = null;
  details.hidden = true;
  grid.focus();
  requestRender();
}

function requestDetails() {
  detailsTimer ||= setTimeout(readDetails, DETAILS_DELAY_MS);
}

async function readDetails() {
  clearTimeout(detailsTimer);
  detailsTimer = 0;
  const own = opened;
  if (!own) return;
  try {
    const found = await request(`${pathOf(own)}?database=${own.database}`);
    if (own !== opened) return;
    const now = performance.now();
    own.lock = found.lock;
    if (own.lock) own.lock.deadline = now + (own.lock.lease_ms ?? Infinity);
    showDetails(own.lock, found.history, found.now_ms);
    document.querySelector(".actions").hidden = !(found.may_release && found.lock);
  } catch (error) {
    showProblem(`The lock cannot be read: ${error.message}`);
  }
}

function showDetails(lock, history, nowMs) {
  const body = [];
  openedParts = null;
  if (lock) {
    body.push(facts(lock));
    body.push(element("h3", "", "Holders"), list("ul", lock.holders, (it) => {
      const count = it.count > 1 ? `, ${it.count} times` : "";
      return clientText(it) + count;
    }));
    body.push(element("h3", "", "Waiting, in order"), list("ol", lock.waiters,
      (it) => `${clientText(it)}, ${it.how}`));
  } else {
    body.push(element("p", "none", "This lock is not held now."));
  }
  body.push(element("h3", "", "Refused attempts in the last minute"));
  body.push(contention(history, nowMs));
  body.push(element("h3", "", "History, latest first"), historyList(history));
  byId("details-body").replaceChildren(...body);
  showTimes();
}

function clientText(client) {
  if (!client.address) return holderText(client);
  const name = client.name ? `${shown(client.name)}, ` : "";
  return `${name}${shown(client.address)}, user ${shown(client.user)}, client ${client.client}`;
}

function facts(lock) {
  const bar = element("div", "bar", element("i"));
  const left = element("div", "line");
  const since = element("dd");
  openedParts = { bar, left, fill: bar.firstChild, since };
  const kind = `${lock.kind}, ${lock.confidence}: ${lock.reason}`;
  const made = element("dl", "facts");
  const add = (name, value) => made.append(element("dt", "", name), value);
  add("Lease", element("dd", "lease", left, bar));
  if (lock.lease_full_ms !== null) add("Full lease", element("dd", "", span(lock.lease_full_ms)));
  add("Held for", since);
  add("Renewals", element("dd", "", numbers.format(lock.renewals)));
  add("Refused", element("dd", "", numbers.format(lock.refusals)));
  add("Kind", element("dd", "", kind));
  add("Shape", element("dd", "", lock.shape));
  add("Database", element("dd", "", `${lock.database}`));
  return made;
}

function list(name, items, text) {
  if (!items.length) return element("p", "none", "none");
  return element(name, "", ...items.map((it) => element("li", "", text(it))));
}

/** A chart of the refused attempts: one bar for each second. */
function contention(history, nowMs) {
  const seconds = new Array(60).fill(0);
  for (const event of history) {
    const ago = Math.floor((nowMs - event.at_ms) / 1000);
    if (event.event === "refused" && ago >= 0 && ago < 60) seconds[59 - ago]++;
  }
  const most = Math.max(1, ...seconds);
  const svg = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const chart = svg("svg");
  chart.setAttribute("class", "contention");
  chart.setAttribute("viewBox", "0 0 600 100");
  chart.setAttribute("preserveAspectRatio", "none");
  chart.setAttribute("role", "img");
  const sum = seconds.reduce((all, count) => all + count, 0);
  chart.setAttribute("aria-label", `${sum} refused attempts in the last minute, in the history`);
  seconds.forEach((count, at) => {
    const bar = svg("rect");
    const height = (100 * count) / most;
    for (const [name, value] of Object.entries({ x: at * 10, y: 100 - height, width: 8, height })) {
      bar.setAttribute(name, value);
    }
    chart.append(bar);
  });
  return chart;
}

function historyList(history) {
  if (!history.length) return element("p", "none", "none");
  const items = [...history].reverse().map((event) => {
    const date = new Date(event.at_ms);
    const time = element("time", "", `${date.toLocaleTimeString("en-GB")}.${
      `${date.getMilliseconds()}`.padStart(3, "0")}`);
    time.dateTime = date.toISOString();
    const client = event.client ? `client ${event.client}` : "";
    return element("li", "", time, element("span", "", event.event), element("span", "", client));
  });
  return element("ul", "history", ...items);
}

// --- Forced release ---

function askForRelease() {
  const lock = opened?.lock;
  if (!lock) return;
  const holders = lock.holders.map(holderText).join(", ") || "its holder";
  setText(byId("confirm-key"), shown(lock.key));
  setText(byId("confirm-text"), `Another client can take the lock at once. ${holders} is not `
    + "notified, and may still use what the lock protects.");
  byId("confirm").returnValue = "cancel";
  byId("confirm").showModal();
}

async function releaseIfConfirmed() {
  const target = opened;
  if (byId("confirm").returnValue !== "release" || !target) return;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": session.token };
  const body = JSON.stringify({ database: target.database });
  try {
    await request(pathOf(target, "/release"), { method: "POST", headers, body });
    hideProblem();
    requestDetails();
  } catch (error) {
    showProblem(`The lock was not released: ${error.message}`);
  }
}

// --- Page ---

function showState(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection"), text);
}

function showProblem(text) {
  byId("problem").hidden = false;
  setText(byId("problem"), text);
}

function hideProblem() {
  byId("problem").hidden = true;
}

/** The role of a node in its cluster: a follower may be late. */
function nodeText(node) {
  const entries = (count) => `${count} ${count === "1" ? "entry" : "entries"}`;
  const term = `term ${node.raft_term}`;
  if (node.raft_has_leader === "0") return `No node leads, ${term}: no lock is granted`;
  if (node.raft_leads === "1") {
    return `Leader, ${term}: ${node.raft_nodes_in_contact} of ${node.raft_nodes} nodes in contact, `
      + `the slowest is ${entries(node.raft_lag_entries)} behind`;
  }
  return `Follower of ${node.raft_leader}, ${term}: what is shown may be late; `
    + `${entries(node.raft_lag_entries)} not applied`;
}

/** Shows the role again and again; not at all if the server is no node. */
async function showNode() {
  try {
    const node = await request("/node");
    if (!node.raft_role) return;
    const place = byId("node");
    place.hidden = false;
    const isLate = node.raft_has_leader === "0" || Number(node.raft_nodes_in_contact) < Number(node.raft_nodes);
    place.dataset.state = isLate ? "late" : "";
    setText(place, nodeText(node));
  } catch {
    // The state of the connection is shown elsewhere.
  }
  setTimeout(showNode, NODE_MS);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-pressed", isDark());
}

async function logOut() {
  await request("/logout", { method: "POST", headers: { "X-CSRF-Token": session.token } });
  location.assign("/login");
}

async function begin() {
  setTheme(localStorage.getItem("theme"));
  showSort();
  byId("theme").addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  });
  for (const button of grid.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => sortBy(button.dataset.sort));
  }
  filterInput.addEventListener("input", () => setFilter(filterInput.value));
  filterInput.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") grid.focus();
  });
  grid.addEventListener("scroll", requestRender, { passive: true });
  grid.addEventListener("keydown", onGridKey);
  document.addEventListener("keydown", onKey);
  new ResizeObserver(requestRender).observe(grid);
  byId("close").addEventListener("click", closeDetails);
  byId("release").addEventListener("click", askForRelease);
  byId("confirm").addEventListener("close", releaseIfConfirmed);
  byId("logout").addEventListener("click", logOut);
  setInterval(showFigures, FIGURES_MS);
  animate();
  try {
    session = await request("/session");
    setText(byId("user"), session.user);
    document.querySelector(".user").hidden = !session.is_login;
    showNode();
  } catch (error) {
    showProblem(error.message);
  }
  await readAll();
}

begin();
