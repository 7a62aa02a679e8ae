// The page of locks: reads all locks once, then applies events as they happen. A follower has no
// events: there all locks are read again and again. Only the visible rows are in the document.
"use strict";

/** Rows beyond the visible ones, so that scrolling shows no gap. */
const ROWS_BEYOND = 8;
/** Locks that are sorted or filtered before the browser may do other work. */
const CHUNK_LENGTH = 4000;
/** Changes that are inserted one by one; more are merged with all locks. */
const INSERTED_ONE_BY_ONE_MAX = 8;
const MINUTE_MS = 60_000;
const RETRY_MS = 1000;
/** The server ends each connection after a while; the next one is opened at once. */
const REOPEN_MS = 100;
/** How often a page of a follower reads all locks. */
const FOLLOWER_MS = 2000;
/** The server replies within five seconds, if only with an error. */
const REPLY_TIMEOUT_MS = 10_000;
/** The end of a long key, which is shown when its middle is not. */
const KEY_END_LENGTH = 12;
/** Names of clients that are remembered for histories. */
const NAMES_MAX = 10_000;
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
/** The names of clients by their ids: events have only the ids. */
const names = new Map();

// --- Locks ---

const idOf = (it) => `${it.database}:${it.key_encoded ?? encodeURIComponent(it.key)}`;
const pathOf = (lock, end = "") => `/locks/${lock.key_encoded ?? encodeURIComponent(lock.key)}${end}`;

/** Characters that are invisible or change the direction; `lockwheel locks` marks the same. */
const INVISIBLE = new RegExp(String.raw`[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160`
  + String.raw`\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f`
  + String.raw`\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]`, "gu");

/** A text of a client, in which the codes of invisible characters are visible. */
function shown(text) {
  return text.replace(INVISIBLE, (it) => `\\u{${it.codePointAt(0).toString(16)}}`);
}

/** The name of a client, else the owner that it acts for, its address, its id. */
function holderText({ name, owner, address, client }) {
  const text = name || owner || address;
  return text ? shown(text) : client ? `client ${client}` : "not known";
}

const isDisconnected = (holder) => holder.client !== 0 && !holder.address;

/** Remembers the names of the clients of a lock. */
function remember(lock) {
  for (const it of [...lock.holders, ...lock.waiters]) {
    if (!it.client || !it.address) continue;
    if (names.size >= NAMES_MAX) names.clear();
    names.set(it.client, holderText(it));
  }
}

/** Prepares a lock of a reply: what it is sorted and filtered by, and its times on this clock. */
function prepared(lock, generationOfRead, nowMs) {
  const now = performance.now();
  remember(lock);
  const old = locks.get(lock.id = idOf(lock));
  lock.read = generationOfRead;
  lock.readAt = now;
  lock.deadline = lock.lease_ms === null ? Infinity : now + lock.lease_ms;
  lock.heldFrom = lock.since_ms === 0 ? null : now - (nowMs - lock.since_ms);
  lock.text = [lock.key, ...lock.holders.flatMap((it) => [it.name, it.owner ?? "", it.address])]
    .join("\n").toLowerCase();
  const first = lock.holders[0];
  lock.order = {
    key: lock.key,
    kind: lock.kind,
    holder: first ? first.name || first.owner || first.address : "",
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
  const signal = AbortSignal.timeout(REPLY_TIMEOUT_MS);
  const response = await fetch(path, { signal, ...options }).catch(() => {
    throw new Error("the server does not reply");
  });
  if (response.status === 401) {
    location.assign("/login");
    return new Promise(() => {});
  }
  const body = response.status === 204 ? {} : await response.json();
  if (!response.ok) throw new Error(body.error ?? `the server replied ${response.status}`);
  return body;
}

let isLoaded = false;
let isFollower = false;
let isOpen = false;
let reads = 0;
let readTimer = 0;

/** What is wrong, by the part of the page that has found it. */
const failures = new Map();
/** When the state was known last: by the clock of the page, and of the day. */
let known = { at: 0, date: null };

const isLive = () => failures.size === 0 && isLoaded && (isOpen || isFollower);

/** The time for which the state is shown. Without a connection that is the last known one. */
const shownAt = () => (failures.size ? known.at : performance.now());

/** Records why a part of the page does not know the state, or that it does. */
function setFailure(part, reason) {
  if (reason) failures.set(part, reason);
  else failures.delete(part);
  const [first] = failures.values();
  const lost = byId("lost");
  lost.hidden = !first;
  document.body.dataset.state = first ? "lost" : "";
  if (first) {
    const time = known.date?.toLocaleTimeString("en-GB");
    const state = time ? ` What is shown is the state of ${time}.` : "";
    setText(lost, `No connection to the locks: ${first}.${state}`);
    showState("waiting", "Reconnecting");
  } else if (isLive()) {
    showState("live", isFollower ? "Read every 2 s" : "Live");
  }
  requestRender();
}

function readLater(delayMs) {
  clearTimeout(readTimer);
  readTimer = setTimeout(readAll, delayMs);
}

/** Reads all locks, then follows the events. */
async function readAll() {
  clearTimeout(readTimer);
  source?.close();
  [source, isOpen] = [null, false];
  const own = ++reads;
  try {
    let [cursor, sequence, leader] = ["0", null, undefined];
    const pending = [];
    do {
      const part = await request(`/locks?count=1000&cursor=${encodeURIComponent(cursor)}`);
      if (own !== reads) return;
      ({ cursor, leader } = part);
      sequence ??= part.sequence;
      pending.push(...part.locks.map((lock) => prepared(lock, own, part.now_ms)));
      // The more locks there are, the longer a merge takes, and the fewer are made.
      if (cursor === "0" || pending.length >= Math.min(CHUNK_LENGTH, locks.size / 4)) {
        const read = pending.splice(0);
        await inTurn(() => change(read, []));
      }
    } while (cursor !== "0");
    const gone = [...locks.values()].filter((lock) => lock.read !== own).map((lock) => lock.id);
    await inTurn(() => change([], gone));
    isLoaded = true;
    isFollower = leader !== undefined;
    if (isFollower) {
      setFailure("locks", null);
      requestDetails();
      readLater(FOLLOWER_MS);
    } else {
      follow(sequence);
    }
  } catch (error) {
    if (own !== reads) return;
    setFailure("locks", error.message);
    readLater(RETRY_MS);
  }
  requestRender();
}

function follow(sequence) {
  const own = reads;
  const stream = new EventSource(`/events?since=${sequence}`);
  source = stream;
  let last = sequence;
  stream.onopen = () => {
    isOpen = true;
    setFailure("locks", null);
  };
  stream.onmessage = (message) => {
    const news = JSON.parse(message.data);
    last = news.sequence;
    inTurn(() => (own === reads ? apply(news) : undefined));
  };
  stream.onerror = () => {
    stream.close();
    if (own !== reads) return;
    if (isOpen) {
      isOpen = false;
      setTimeout(() => { if (own === reads) follow(last); }, REOPEN_MS);
    } else {
      setFailure("locks", "the server does not reply");
      readLater(RETRY_MS);
    }
  };
}

function apply(news) {
  if (news.missed || news.events.some((event) => event.key === "" && event.event === "removed")) {
    readAll();
    return;
  }
  const changed = news.locks.map((lock) => prepared(lock, reads, news.now_ms));
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
  const [begin, end] = [element("span", "begin"), element("span", "end")];
  const parts = {
    key: element("div", "line key", begin, end), begin, end, database: line("second"),
    kind: line(""), confidence: line("second"), holder: line(""), address: line("second"), waiters: line(""), next: line("second"),
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
  const top = `translateY(${place * rowHeight}px)`;
  if (row.style.transform !== top) row.style.transform = top;
  row.setAttribute("aria-rowindex", place + 2);
  row.setAttribute("aria-selected", lock.id === selected?.id);
  if (row.lock === lock) return;
  row.lock = lock;
  row.dataset.key = lock.key;
  row.classList.toggle("fresh", lock.freshUntil > performance.now());
  const [first, ...others] = lock.holders;
  const more = others.length ? ` and ${others.length} more` : "";
  // A long key loses its middle: the ends distinguish it.
  const key = [...shown(lock.key)];
  const endLength = key.length > 2 * KEY_END_LENGTH ? KEY_END_LENGTH : 0;
  setText(parts.begin, key.slice(0, key.length - endLength).join(""));
  setText(parts.end, key.slice(key.length - endLength).join(""));
  parts.key.title = key.join("");
  setText(parts.database, lock.database ? `database ${lock.database}` : "");
  setText(parts.kind, lock.kind);
  setText(parts.confidence, lock.confidence === "certain" ? "" : lock.confidence);
  setText(parts.holder, first ? holderText(first) + more : "none");
  const isGone = first !== undefined && isDisconnected(first);
  const isNamed = first?.address && (first.name || first.owner);
  setText(parts.address, isGone ? "disconnected"
    : isNamed ? `${shown(first.address)} \u00b7 ${shown(first.user)}` : "");
  parts.address.classList.toggle("alarm", isGone);
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
  text.classList.toggle("alarm", lock.lease_ms === null);
  if (lock.lease_ms === null) {
    setText(text, "no lease");
    bar.dataset.state = "none";
    return;
  }
  const left = Math.max(0, lock.deadline - shownAt());
  const part = Math.min(1, left / Math.max(1, lock.lease_full_ms ?? lock.lease_ms));
  setText(text, leaseText(left));
  bar.dataset.state = part > 0.3 ? "long" : part > 0.1 ? "short" : "over";
  fill.style.transform = `scaleX(${part.toFixed(4)})`;
}

/** Refused attempts in the last minute; the server counts again when one is refused. */
const refusalsOf = (lock) =>
  (shownAt() - lock.readAt < MINUTE_MS ? lock.refusals : 0);

/** The clients that wait for a lock now. */
function waitingFor(lock) {
  const isRecent = shownAt() - lock.readAt < RETRY_WAIT_MS;
  return isRecent ? lock.waiters : lock.waiters.filter((it) => it.how !== "refused");
}

const heldFor = (lock) =>
  (lock.heldFrom === null ? "not known" : span(Math.max(0, shownAt() - lock.heldFrom)));

/** The height of a row, which is a card on a small screen. */
let rowHeight = 46;

let isRenderRequested = false;
function requestRender() {
  if (isRenderRequested) return;
  isRenderRequested = true;
  requestAnimationFrame(render);
}

function render() {
  isRenderRequested = false;
  rowHeight = parseFloat(getComputedStyle(grid).getPropertyValue("--row-height"));
  rows.style.height = `${view.length * rowHeight}px`;
  grid.setAttribute("aria-rowcount", view.length + 1);
  const above = Math.floor(grid.scrollTop / rowHeight) - ROWS_BEYOND;
  const start = Math.max(0, Math.min(above, view.length));
  const count = Math.ceil(grid.clientHeight / rowHeight) + 2 * ROWS_BEYOND;
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
  setText(byId("empty-text"), emptyText());
  byId("empty-command").hidden = !isEmpty() || isFollower;
  showTimes();
}

const isEmpty = () => isLive() && locks.size === 0;

function emptyText() {
  if (locks.size) return "No lock matches the filter";
  if (failures.size) return "It is not known which locks are held";
  if (!isEmpty()) return "Reading the locks";
  return isFollower ? "No lock is held" : "No lock is held. Take one:";
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
  if (isLive()) known = { at: performance.now(), date: new Date() };
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
  const [top, height] = [place * rowHeight, grid.clientHeight - headHeight];
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top + rowHeight > grid.scrollTop + height) grid.scrollTop = top + rowHeight - height;
  select(view[place]);
}

function onGridKey(event) {
  if (event.target !== grid) return;
  const page = Math.max(1, Math.floor(grid.clientHeight / rowHeight) - 2);
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
    own.lock = found.lock && prepared(found.lock, reads, found.now_ms);
    showDetails(own.lock, found);
    // A follower releases nothing.
    const mayRelease = found.may_release && found.lock && found.leader === undefined;
    document.querySelector(".actions").hidden = !mayRelease;
  } catch (error) {
    // That there is no connection is shown already.
    if (!failures.size) showProblem(`The lock cannot be read: ${error.message}`);
  }
}

function showDetails(lock, { history, leader, now_ms: nowMs }) {
  const body = [];
  openedParts = null;
  if (lock) {
    body.push(facts(lock));
    body.push(element("h3", "", "Holders"), list("ul", lock.holders, holderLines));
  } else {
    body.push(element("p", "none", "This lock is not held now."));
  }
  if (leader !== undefined) {
    body.push(element("p", "none", `${atLeader(leader)}, and so is the history.`));
  } else {
    if (lock) {
      body.push(element("h3", "", "Waiting, in order"), list("ol", lock.waiters,
        (it) => [`${clientText(it)}, ${it.how}`]));
    }
    body.push(element("h3", "", "Refused attempts in the last minute"));
    body.push(contention(history, nowMs));
    body.push(element("h3", "", "History, latest first"), historyList(history));
  }
  byId("details-body").replaceChildren(...body);
  showTimes();
}

const atLeader = (leader) =>
  `Holders and waiting clients are shown at the leader${leader && `, ${shown(leader)}`}`;

/** A holder; that of a native lock with its grant, if the user may see it. */
function holderLines(holder) {
  const count = holder.count > 1 ? `, ${numbers.format(holder.count)} times` : "";
  const lines = [clientText(holder) + count];
  if (isDisconnected(holder)) lines.push(element("div", "alarm", "disconnected"));
  if (holder.owner !== undefined) {
    lines.push(element("div", "", `owner ${shown(holder.owner)}`));
    lines.push(element("div", "", `fencing token ${holder.token}`));
  }
  if (holder.meta !== undefined) lines.push(element("div", "", `META ${shown(holder.meta)}`));
  return lines;
}

function clientText(client) {
  if (!client.address) return client.client ? `client ${client.client}` : "client not known";
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

function list(name, items, lines) {
  if (!items.length) return element("p", "none", "none");
  return element(name, "", ...items.map((it) => element("li", "", ...lines(it))));
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

/** The events, the latest first; refused attempts without another event between them are one. */
function grouped(history) {
  const groups = [];
  for (const event of [...history].reverse()) {
    const last = groups.at(-1);
    if (last?.event === "refused" && event.event === "refused") {
      last.count++;
      last.clients.add(event.client);
    } else {
      groups.push({ ...event, count: 1, clients: new Set([event.client]) });
    }
  }
  return groups;
}

/** The clients of a group of events; the first few by their names. */
function clientsText(clients) {
  const known = [...clients].filter((client) => client !== 0);
  const first = known.slice(0, 3).map((client) => names.get(client) ?? `client ${client}`);
  const more = known.length - first.length;
  return first.join(", ") + (more ? ` and ${more} more` : "");
}

function historyList(history) {
  if (!history.length) return element("p", "none", "none");
  const items = grouped(history).map((event) => {
    const date = new Date(event.at_ms);
    const time = element("time", "", `${date.toLocaleTimeString("en-GB")}.${
      `${date.getMilliseconds()}`.padStart(3, "0")}`);
    time.dateTime = date.toISOString();
    const count = event.count > 1 ? `${numbers.format(event.count)} times: ` : "";
    const clients = element("span", "", count + clientsText(event.clients));
    return element("li", "", time, element("span", "", event.event), clients);
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
  if (node.raft_has_leader === "0") {
    return `No leader, ${term}: no lock is granted until more than half of the nodes (${
      node.raft_nodes}) are in contact`;
  }
  if (node.raft_leads === "1") {
    return `Leader, ${term}: ${node.raft_nodes_in_contact} of ${node.raft_nodes} nodes in contact, `
      + `the slowest is ${entries(node.raft_lag_entries)} behind`;
  }
  return `Follower of ${node.raft_leader}, ${term}: holders and waiting clients are shown there; `
    + `${entries(node.raft_lag_entries)} not applied`;
}

/** Shows which server this is, in the header and in the title, and how to take a lock there. */
function showServer(node) {
  const port = node.tcp_port;
  const place = `${location.hostname}:${port}`;
  const hasLeader = node.raft_has_leader === "1";
  const role = !node.raft_role ? "" : hasLeader ? node.raft_role : "no leader";
  const nodes = node.raft_nodes === "1" ? "1 node" : `${node.raft_nodes} nodes`;
  const parts = [place, role && `${role}, ${nodes}`, `version ${node.lockwheel_version}`];
  setText(byId("server"), parts.filter(Boolean).join(" \u00b7 "));
  document.title = `${place}${role && ` ${role}`} - Locks - Lockwheel`;
  const isLocal = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
  const options = [isLocal ? "" : `-h ${location.hostname} `, port === "6379" ? "" : `-p ${port} `];
  setText(byId("empty-command"),
    `lockwheel cli ${options.join("")}LOCK.ACQUIRE order:7 me TTL 60000`);
}

/** Shows the server and its role in its cluster, again and again. */
async function showNode() {
  try {
    const node = await request("/node");
    showServer(node);
    if (node.raft_role) {
      const place = byId("node");
      place.hidden = false;
      const [contact, all] = [node.raft_nodes_in_contact, node.raft_nodes].map(Number);
      const isLate = node.raft_has_leader === "0" || contact < all;
      place.dataset.state = isLate ? "late" : "";
      setText(place, nodeText(node));
    }
    setFailure("node", null);
  } catch (error) {
    setFailure("node", error.message);
  }
  setTimeout(showNode, NODE_MS);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(theme) {
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  setText(byId("theme"), isDark() ? "Use light colours" : "Use dark colours");
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
