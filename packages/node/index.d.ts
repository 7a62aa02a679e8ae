// The types and the documentation of the package.

/// <reference lib="esnext.disposable" />

/**
 * A span of time in whole milliseconds: "250ms", "30s", "1.5h", "1h30m" (ms, s, m, h, d). The server
 * refuses a number without a unit.
 */
export type Span = Part | `${Part}${Part}` | `${Part}${Part}${Part}`;

/** A number with a unit. */
type Part = `${number}${"ms" | "s" | "m" | "h" | "d"}`;

/** An argument of a command. */
export type Argument = string | number | bigint | Uint8Array;

/** A reply: strings as text, integers as numbers. */
export type Reply = string | number | null | ReplyError | Reply[];

/** An error reply. The message is its line. */
export class ReplyError extends Error {}

/** A check failed. The message names what broke the rule, and contains the entries of the lock. */
export class CheckError extends Error {}

/** A check of the journal. */
export type Check =
  | "no-lock-held"
  | "never-two-holders"
  | "every-lock-has-a-lease"
  | "released-only-by-owner"
  | "refused-by-own-token"
  | "no-waiter-lost"
  | "renewed-before-expiry";

export interface Options {
  /** Starts the server with a stopped clock. */
  frozen?: boolean;
  /** The time of the clock at the start, instead of the current time. Numbers as for `Clock.set`. */
  clockStart?: Date | number;
  /** Patterns of keys that are locks, however they are made. Patterns are those of KEYS. */
  lockKeys?: readonly string[];
  /** Patterns of keys that are no locks, also if they match another pattern. */
  ignoredLockKeys?: readonly string[];
  /**
   * Options of redis-server, as on its command line: `["--requirepass", "secret"]`. The path of a
   * configuration file comes first.
   */
  options?: readonly (string | number)[];
  /** The checks that `check()` runs, and `serverBetween` at the end. */
  check?: readonly Check[];
}

/**
 * Starts a server on a free port of 127.0.0.1. It ends with `stop()`, or when this process ends for
 * any reason. A running server does not keep this process running. If the server does not start,
 * the error contains its output.
 */
export function start(options?: Options): Promise<Server>;

/**
 * Starts a server in one hook of a test framework and stops it in the other: one for each test with
 * `beforeEach` and `afterEach`, one for a file with `beforeAll` and `afterAll`. The second hook
 * fails if one of `options.check` fails.
 */
export function serverBetween(before: Hook, after: Hook, options?: Options): Server;

/** A hook of a test framework. */
export type Hook = (body: () => Promise<void>) => unknown;

/** A server for tests. Its methods use connections of their own. */
export class Server {
  /** Does not start the server. Throws a `TypeError` for an unknown option. */
  constructor(options?: Options);
  /** The URL for clients: `redis://127.0.0.1:12345`, with the password if the server has one. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** The process id of the server. */
  readonly pid: number;
  readonly clock: Clock;
  readonly faults: Faults;
  readonly journal: Journal;
  /** Starts the server. After `stop()` it starts again, empty and on another port. */
  start(): Promise<this>;
  /**
   * Stops the server, if it runs, and starts it again on the same port, as at the first start: all
   * connections end, and all keys are lost unless the option `--appendonly yes` keeps them.
   */
  restart(): Promise<this>;
  /** Stops the server. Does nothing if it is not running. */
  stop(): Promise<void>;
  /** As `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * Runs one command. Rejects with a `ReplyError` for an error reply. Calls that are not awaited run
   * concurrently on several connections; sequential calls use the same connection.
   */
  call(...command: [Argument, ...Argument[]]): Promise<Reply>;
  /**
   * Restores the state after the start, for a server shared by several tests: no keys, scripts,
   * functions, fault rules, gates or names of clients, an empty journal, the settings of the start,
   * and the clock running or stopped as at the start. The connections of clients and the time stay.
   */
  reset(): Promise<void>;
  /** Runs the checks of `options.check`. */
  check(): Promise<void>;
}

/** The clock of a server. Leases and the timeouts of blocking commands follow it. */
export interface Clock {
  /** Stops the clock. */
  freeze(): Promise<void>;
  /** Runs the clock at a multiple of real time (1). */
  run(rate?: number): Promise<void>;
  /** Moves the clock forward. Everything due on the way happens in order, at its own time. */
  advance(span: Span): Promise<void>;
  /**
   * As `advance`, to a moment: a `Date`, or milliseconds since 1970 as `Date.now()` returns them.
   * Rejects with a `ReplyError` if it is in the past, since the clock never goes back.
   */
  set(moment: Date | number): Promise<void>;
  /** Simulates a step of Redis's clock: forward ends leases early, back prolongs them. */
  jump(span: Span): Promise<void>;
  /** Steps only the wall clock, that of TIME and EXPIREAT. Leases do not change. */
  step(span: Span): Promise<void>;
  /** The times and the rate of the clock. */
  now(): Promise<Moment>;
}

/** The time of leases, the wall clock (TIME), and the rate (0 if the clock is stopped). */
export interface Moment {
  now_ms: number;
  wall_ms: number;
  rate: number;
}

/** The conditions of a rule, all of which a request must match. Patterns are those of KEYS. */
export interface Conditions {
  /** A pattern of the client's name (CLIENT SETNAME). */
  client?: string;
  /** The client's CLIENT ID. */
  clientId?: number;
  /** A pattern of the command: "set", "eval*", "client|id". */
  command?: string;
  /** A pattern of one of the request's keys. */
  key?: string;
  /** Only the n-th of the matching requests. */
  nth?: number;
  /** At most this many of them. */
  times?: number;
  /** Each of them with this probability (0 to 1). The same seed selects the same requests. */
  probability?: number;
  seed?: number;
}

/** Fault rules and gates. The first matching rule applies. */
export interface Faults {
  /**
   * Adds a rule. "drop" does not run the request and sends no reply; "close" does not run it and
   * closes the connection; "lose" runs it and sends no reply; "lose-and-close" runs it and closes
   * the connection; "stall" stops reading from the connection until the rule is cleared;
   * "flush-scripts" removes all scripts, then runs the request; "refuse" closes new connections.
   */
  add(
    action: "drop" | "close" | "lose" | "lose-and-close" | "stall" | "flush-scripts" | "refuse",
    conditions?: Conditions,
  ): Promise<Rule>;
  /** "delay" holds the request for the span; "jump" runs it, then lets the clock jump. */
  add(action: "delay" | "jump", span: Span, conditions?: Conditions): Promise<Rule>;
  /** "cut" sends this many bytes of the reply; "lose-writes" undoes this many last writes. */
  add(action: "cut" | "lose-writes", count: number, conditions?: Conditions): Promise<Rule>;
  /** Replies with this error: "LOADING Redis is loading the dataset in memory". */
  add(action: "error", line: string, conditions?: Conditions): Promise<Rule>;
  /** Adds a gate, which holds matching requests before they run. */
  gate(conditions?: Conditions): Promise<Gate>;
  /** All rules except gates. */
  list(): Promise<ListedRule[]>;
  /** All gates. */
  gates(): Promise<ListedRule[]>;
  /** Removes the rule with this number, or all. */
  clear(number?: number): Promise<void>;
  /**
   * Simulates a failover to a replica that lacks the last `lose` writes (0): undoes them, removes
   * all scripts and disconnects all clients. Returns the number of undone writes.
   */
  failover(options?: { lose?: number }): Promise<number>;
}

export interface Rule {
  readonly number: number;
  /** The numbers of requests that matched the conditions, and that the rule was applied to. */
  counts(): Promise<{ matched: number; fired: number }>;
  clear(): Promise<void>;
}

export interface Gate {
  readonly number: number;
  /** Waits until the gate holds a client. Returns its CLIENT ID. */
  wait(): Promise<number>;
  /** Removes the gate and releases its clients. Returns their number. */
  open(): Promise<number>;
}

/** A rule or gate as the server lists it: the argument of its action, its conditions and counts. */
export interface ListedRule extends Omit<Conditions, "clientId"> {
  id: number;
  /** "delay", "lose-and-close", "gate" ... */
  action: string;
  /** The arguments of "delay", "cut", "error", "jump" and "lose-writes". */
  delay_ms?: number;
  bytes?: number;
  line?: string;
  jump_ms?: number;
  writes?: number;
  /** `clientId` of the conditions. */
  client_id?: number;
  /** The requests that matched, "nth", "times" and "probability" aside, and those it was applied to. */
  matched: number;
  fired: number;
  /** The CLIENT IDs of the clients that it holds. */
  held: number[];
}

/** The commands and the events of locks, recognised from the effects of commands and scripts. */
export interface Journal {
  /** Entries in time order, the last `count` of them. */
  entries(only?: Scope & { count?: number }): Promise<Entry[]>;
  /** The same entries as text, one line each. */
  story(only?: Scope & { count?: number }): Promise<string>;
  /** The held locks, also those that are only possibly locks. */
  locks(): Promise<HeldLock[]>;
  /** The keys that are or were locks, also those that are only possibly locks, and why. */
  knownLocks(): Promise<KnownLock[]>;
  /** Declares that keys that match the pattern are locks, however they are made. */
  declareLocks(pattern: string): Promise<void>;
  /** Declares that keys that match the pattern are no locks. */
  ignoreLocks(pattern: string): Promise<void>;
  /** Common mistakes in the use of locks. */
  lint(scope?: Scope): Promise<Finding[]>;
  /** Removes all entries. Held locks stay recognised. */
  clear(): Promise<void>;
  /** Rejects with a `CheckError` if the check fails. */
  assert(check: Check, scope?: Scope): Promise<void>;
  /** No client holds a lock. */
  assertNoLockHeld(scope?: Scope): Promise<void>;
  /** No lock was taken while a former holder still used it. */
  assertNeverTwoHolders(scope?: Scope): Promise<void>;
  /** Every lock has a lease. */
  assertEveryLockHasALease(scope?: Scope): Promise<void>;
  /** No client released the lock of another. */
  assertReleasedOnlyByOwner(scope?: Scope): Promise<void>;
  /** No client was refused a lock that holds its own token. */
  assertNotRefusedByOwnToken(scope?: Scope): Promise<void>;
  /** Every client that was refused a lock has acquired it since. */
  assertNoWaiterLost(scope?: Scope): Promise<void>;
  /** No lease expired. */
  assertRenewedBeforeExpiry(scope?: Scope): Promise<void>;
}

/** What a check, lint or the entries are about. */
export interface Scope {
  /** Only keys that match this pattern. Checks also consider keys that are only possibly locks. */
  key?: string;
  /** Only what this client has done: its CLIENT ID, or its name. */
  client?: number | string;
  /** Only what happened after the entry with this number. */
  since?: number;
}

/** A fault that happened to a request. */
export interface AppliedFault {
  /** The number of the rule. */
  rule: number;
  /** What happened: "executed; reply lost; connection closed". */
  effect: string;
}

/** An entry of the journal. The event determines which optional fields it has. */
export interface Entry {
  /** The number of the entry, counted from 1. */
  seq: number;
  /** Milliseconds since 1970 on the clock of leases. */
  time_ms: number;
  /** The CLIENT ID of the client, 0 for the clock. */
  client: number;
  /** The name of the client, if it has one. */
  name?: string;
  /** The library of the client, if it has named one. */
  library?: string;
  /** "command", "acquired", "renewed", "refused", "released", "expired-while-held" ... */
  event: string;
  keys: string[];
  /** The number of the request, the same for all entries of a script or a transaction; else 0. */
  request: number;
  /** Whether the key is only possibly a lock. */
  possible?: boolean;
  /** The request and the reply of a command, shortened. */
  argv?: string[];
  reply?: string;
  /** Whether a script called the command. */
  script?: boolean;
  /** Whether `EXEC` ran the command. */
  transaction?: boolean;
  /** The fault that happened to the request. */
  fault?: AppliedFault;
  /** The number of the rule that held a client. */
  rule?: number;
  /** What happened to the clock. */
  order?: string;
  /** Why a key is a lock. */
  reason?: string;
  /** The present or former owner of the lock. */
  owner?: string;
  /** How many times the owner holds the lock, and how many holds are left after a release. */
  count?: number;
  left?: number;
  /** The lease, null if there is none. */
  lease_ms?: number | null;
  /** The owner that was refused. */
  by?: string;
  /** The owner of the refused lock, else the CLIENT ID of the client that took the lock. */
  holder?: string | number;
  /** The time from the first refusal to the acquisition. */
  waited_ms?: number;
  /** The time from the loss of the lock to the late command. */
  late_ms?: number;
}

export interface HeldLock {
  key: string;
  database: number;
  owner: string;
  /** How many times the owner holds it. */
  count: number;
  client: number;
  name?: string;
  since_ms: number;
  /** The rest of the lease, null if there is none. */
  lease_ms: number | null;
  /** The CLIENT IDs of the clients that were refused and have not acquired it since. */
  waiting: number[];
  shape: Shape;
  confidence: Confidence;
  /** Why it is a lock. */
  reason: string;
}

/** How a lock is stored: a string, the fields of a hash, the members of a sorted set. */
export type Shape = "token" | "owners" | "semaphore";

/** How sure it is that a key is a lock. */
export type Confidence = "certain" | "likely" | "possible";

/** A key that is or was a lock, possibly. */
export interface KnownLock {
  key: string;
  database: number;
  shape: Shape;
  confidence: Confidence;
  /** Why it is a lock. */
  reason: string;
  /** Whether it is held now. */
  held: boolean;
}

export interface Finding {
  /** "lock-without-lease", "delete-without-check", "lease-shorter-than-hold" ... */
  rule: string;
  key: string;
  /** The problem and its correction. */
  sentence: string;
  count: number;
  entries: Entry[];
}
