// The types of the package.

/// <reference lib="esnext.disposable" />

/** A number of milliseconds, or one with a unit: "500ms", "30s", "5m", "2h", "1d". */
export type Span = number | `${number}${"" | "ms" | "s" | "m" | "h" | "d"}`;

/** What may stand in a command. */
export type Argument = string | number | bigint | Uint8Array;

/** What the server answers: bulk strings as text, integers as numbers. */
export type Reply = string | number | null | ReplyError | Reply[];

/** An error that the server answered with; its message is the server's. */
export class ReplyError extends Error {}

/** A rule about locks that the journal can check. */
export type Check =
  | "no-lock-held"
  | "never-two-holders"
  | "every-lock-has-a-lease"
  | "released-only-by-owner";

export interface Options {
  /** The clock stands still from the start, until the test moves it. */
  frozen?: boolean;
  /**
   * Options of redis-server, as on its command line: `["--requirepass", "secret"]`. The path of a
   * configuration file comes first, as there.
   */
  options?: readonly (string | number)[];
  /** What `check()` asserts, and `serverBetween` at the end. */
  check?: readonly Check[];
}

/**
 * Starts a server of its own on a free port of 127.0.0.1. It ends with `stop()`, and at the latest
 * with this process, however that ends. A server that is forgotten keeps no process running.
 * Rejects with what the server wrote if it does not start.
 */
export function start(options?: Options): Promise<Server>;

/**
 * A server that is started by one hook and stopped by the other, of whatever test framework: one
 * for each test between `beforeEach` and `afterEach`, one for a file between `beforeAll` and
 * `afterAll`. The hook after fails the test if one of `options.check` does not hold.
 */
export function serverBetween(before: Hook, after: Hook, options?: Options): Server;

/** What a test framework offers to run something before or after tests. */
export type Hook = (body: () => Promise<void>) => unknown;

/** A server for tests. What it is told goes over connections of its own. */
export class Server {
  /** Does not start it. */
  constructor(options?: Options);
  /** For any Redis client: `redis://127.0.0.1:12345`, with the password if there is one. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** The number of the server's process. */
  readonly pid: number;
  readonly clock: Clock;
  readonly faults: Faults;
  readonly journal: Journal;
  /** Starts it, also again after `stop()`, then without what was in it. */
  start(): Promise<this>;
  /** Ends it; nothing happens if it does not run. */
  stop(): Promise<void>;
  /** As `stop()`, at the end of the block of an `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
  /**
   * One command with one reply. Rejects with a `ReplyError` if the server refuses it. Calls that
   * are not awaited run side by side; after a reply the same connection makes the next call.
   */
  call(...command: [Argument, ...Argument[]]): Promise<Reply>;
  /**
   * As it was at its start, for those who share one among tests: no keys, no faults and gates, an
   * empty journal, and a clock that stands or runs as it did. (A clock that was moved stays there.)
   */
  reset(): Promise<void>;
  /** Asserts what `options.check` names. */
  check(): Promise<void>;
}

/** The clock that leases and all that happens by itself on the server run on. */
export interface Clock {
  /** It stops. */
  freeze(): Promise<void>;
  /** It runs again, so many times as fast as real time (1). */
  run(rate?: number): Promise<void>;
  /** Moves it on. What is due on the way happens in order, each thing at its own moment. */
  advance(span: Span): Promise<void>;
  /** Moves it on to a moment (milliseconds since 1970), as `advance`. It never goes back. */
  set(moment: Date | number): Promise<void>;
  /** Steps it as Redis's clock may be stepped: forward ends leases early, back prolongs them. */
  jump(span: Span): Promise<void>;
  /** Steps the wall clock alone, that of TIME and EXPIREAT. No lease follows. */
  step(span: Span): Promise<void>;
  /** What it shows. */
  now(): Promise<Moment>;
}

/** What the clock shows: of leases, of the wall (TIME), and how fast it runs (0 if it stands). */
export interface Moment {
  now_ms: number;
  wall_ms: number;
  rate: number;
}

/** Which requests a rule is for: all that it names must hold. Patterns are those of KEYS. */
export interface Conditions {
  /** The client's name (CLIENT SETNAME), a pattern. */
  client?: string;
  /** The client's CLIENT ID. */
  clientId?: number;
  /** The command, a pattern: "set", "eval*", "client|id". */
  command?: string;
  /** One of its keys, a pattern. */
  key?: string;
  /** Of all these only the n-th. */
  nth?: number;
  /** No more than so many. */
  times?: number;
  /** Each of these with this probability (0 to 1); the same seed chooses the same ones. */
  probability?: number;
  seed?: number;
}

/** Things that go wrong on order. The first rule that is for a request decides. */
export interface Faults {
  /**
   * Adds a rule. The actions without an argument: neither run nor answered ("drop"); not run, the
   * connection closed ("close"); run and not answered ("lose"); run, and the connection closed
   * ("lose-and-close"); the server reads no further until the rule is cleared ("stall"); scripts
   * are forgotten before ("flush-scripts"); connections are closed as soon as they are there
   * ("refuse").
   */
  add(
    action: "drop" | "close" | "lose" | "lose-and-close" | "stall" | "flush-scripts" | "refuse",
    conditions?: Conditions,
  ): Promise<Rule>;
  /** Held for so long on the server's clock ("delay"); the clock jumps afterwards ("jump"). */
  add(action: "delay" | "jump", span: Span, conditions?: Conditions): Promise<Rule>;
  /** Of the answer so many bytes ("cut"); so many last writes undone afterwards ("lose-writes"). */
  add(action: "cut" | "lose-writes", count: number, conditions?: Conditions): Promise<Rule>;
  /** Not run, and answered with this error: "LOADING Redis is loading the dataset in memory". */
  add(action: "error", line: string, conditions?: Conditions): Promise<Rule>;
  /** Holds all clients before such requests; everything else goes on. */
  gate(conditions?: Conditions): Promise<Gate>;
  /** All rules but gates. */
  list(): Promise<ListedRule[]>;
  /** All gates, and whom they hold. */
  gates(): Promise<ListedRule[]>;
  /** Removes the rule with this number, or all. */
  clear(number?: number): Promise<void>;
  /**
   * What a failover does to a server whose replica had not heard of the last `lose` writes (0):
   * they are undone, scripts are forgotten, everybody else is disconnected. How many were undone.
   */
  failover(options?: { lose?: number }): Promise<number>;
}

export interface Rule {
  readonly number: number;
  /** How many requests it could have been for, and for how many it was. */
  counts(): Promise<{ matched: number; fired: number }>;
  clear(): Promise<void>;
}

export interface Gate {
  readonly number: number;
  /** Waits until somebody is held; their CLIENT ID. */
  wait(): Promise<number>;
  /** Removes the gate and lets go whom it holds; how many. */
  open(): Promise<number>;
}

/** A rule or gate as the server lists it: its conditions stand in it as well. */
export interface ListedRule {
  id: number;
  action: string;
  matched: number;
  fired: number;
  /** The CLIENT IDs of those it holds. */
  held: number[];
  [condition: string]: unknown;
}

/** What has happened to locks, recognised from what commands and scripts do. */
export interface Journal {
  /** In time order; those after a number, about keys like a pattern, the last so many. */
  entries(only?: { since?: number; key?: string; count?: number }): Promise<Entry[]>;
  /** The same entries as people read them, a line for each. */
  story(only?: { since?: number; key?: string; count?: number }): Promise<string>;
  /** The locks that are held. */
  locks(): Promise<HeldLock[]>;
  /** The usual mistakes that were made. */
  lint(): Promise<Finding[]>;
  /** Forgets what has happened. Locks that are held stay known. */
  clear(): Promise<void>;
  /** Rejects with an `AssertionError` that tells the lock's story if this does not hold. */
  assert(check: Check): Promise<void>;
  /** Nobody holds a lock any more. */
  assertNoLockHeld(): Promise<void>;
  /** Nobody took a lock that another came back for. */
  assertNeverTwoHolders(): Promise<void>;
  /** No lock stays if its owner dies. */
  assertEveryLockHasALease(): Promise<void>;
  /** No lock was taken from its owner. */
  assertReleasedOnlyByOwner(): Promise<void>;
}

export interface Entry {
  seq: number;
  /** On the clock of leases. */
  time_ms: number;
  /** The CLIENT ID of who did it, 0 for the clock. */
  client: number;
  name?: string;
  /** "command", "acquired", "renewed", "refused", "released", "expired-while-held" ... */
  event: string;
  keys: string[];
  [detail: string]: unknown;
}

export interface HeldLock {
  key: string;
  database: number;
  owner: string;
  /** How often the owner has it. */
  count: number;
  client: number;
  name?: string;
  since_ms: number;
  /** How long it lasts still; null if it has no lease. */
  lease_ms: number | null;
  /** The CLIENT IDs of those who were refused it and have not got it since. */
  waiting: number[];
}

export interface Finding {
  /** "lock-without-lease", "delete-without-check", "lease-shorter-than-hold" ... */
  rule: string;
  key: string;
  /** What is wrong, and what to do. */
  sentence: string;
  count: number;
  entries: Entry[];
}
