// The types and the documentation of lockwheel/locks.

/// <reference lib="esnext.disposable" />

/** A `Redis` of ioredis, or a client of node-redis that `createClient` made. */
export interface Client {
  duplicate(...options: any[]): any;
  select(...database: any[]): any;
}

export interface LockOptions {
  /** The lease in milliseconds. It is renewed while the lock is held. */
  ttlMs: number;
  /** How long `acquire` waits, by the server's clock. 0 by default. */
  waitMs?: number;
  /**
   * By default the host, the process and a random number. Locks with the same owner may be held at
   * the same time.
   */
  owner?: string;
  /** Other owners may share the lock. */
  shared?: boolean;
  /** So many permits of a semaphore that has so many: `[1, 3]`. */
  permits?: readonly [number, number];
  /**
   * The server releases the lock `graceMs` (2,000) after its connection has ended. Until then the
   * lock connects again and keeps what it holds.
   */
  bound?: boolean;
  graceMs?: number;
  /** A text that LOCK.INFO shows. */
  meta?: string;
  /**
   * The time between two renewals, by default a third of the lease, or of the grace if that is
   * shorter; 0 turns them off.
   */
  renewMs?: number;
  /** Is called with the lock when it is found to be lost. */
  onLost?: (lock: Lock) => unknown;
}

export interface Waiting {
  /** Instead of `waitMs` of the options. */
  waitMs?: number;
  /** Ends the wait, and the client leaves the queue. The error is the reason of the signal. */
  signal?: AbortSignal;
}

/**
 * A native lock of a Lockwheel server (LOCK.*), over ioredis or node-redis. A lock that is held
 * renews itself. Clients that wait for it form a queue, first in first out.
 *
 * It uses a connection of its own, with the settings of the client, while it waits and while it is
 * held: a shared connection must not wait, and its end would release bound locks.
 */
export class Lock {
  /** Throws a `TypeError` for an unknown option, and for a client that is not supported. */
  constructor(client: Client, key: string, options: LockOptions);
  readonly key: string;
  /** The owner in the commands. */
  readonly owner: string;
  /** The fencing token of the last grant: later grants have greater ones. */
  readonly token: number | undefined;
  /**
   * Whether this object holds the lock, as far as it knows. That ends at the latest when the lease, or
   * the grace of a bound lock unless it is 0, is over by the clock of this process, also while a renewal
   * waits for the server.
   */
  readonly isHeld: boolean;
  /** Is aborted when the lock of the last grant is found to be lost. The reason is a `LockLost`. */
  readonly signal: AbortSignal;
  /**
   * Acquires the lock; may wait for it. Returns whether it is held.
   *
   * If the connection fails, the server may have granted the lock: then acquiring it again succeeds
   * at once, and otherwise it is free when its lease ends.
   */
  acquire(waiting?: Waiting): Promise<boolean>;
  /** As `acquire`, for `await using`. Rejects with `NotAcquired` if the lock is not held then. */
  hold(waiting?: Waiting): Promise<this>;
  /**
   * Holds the lock while a function runs, and returns its result. Rejects with `NotAcquired`, or
   * with `LockLost` if the lock was lost meanwhile.
   */
  using<Result>(
    work: (lock: this) => Result | PromiseLike<Result>,
    waiting?: Waiting,
  ): Promise<Result>;
  /** Renews the lease now. Returns whether the lock is still held. */
  renew(): Promise<boolean>;
  /** Releases the lock. Returns whether it was held until now. */
  release(): Promise<boolean>;
  /** Releases the lock at the end of a block. Rejects with `LockLost` if it was lost. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base class of the errors of locks. */
export class LockError extends Error {}

/** Another owner holds the lock, or the time to wait is over. */
export class NotAcquired extends LockError {}

/** The lock was lost before it was released: another owner may have held it since. */
export class LockLost extends LockError {}

/** The server does not know LOCK.*. */
export class NoNativeLocks extends LockError {}
