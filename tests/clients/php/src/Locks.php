<?php
// The interfaces of a client that acquires locks and of a lock that it holds.

declare(strict_types=1);

namespace Lockwheel\Clients;

/** A client that acquires locks, on its own connection. */
interface Contender
{
    /** Acquires the lock if it is free, else returns null. */
    public function tryLock(string $key, float $leaseSeconds): ?Held;
}

/** A held lock. */
interface Held
{
    /** Releases the lock. Returns whether it was still held. */
    public function unlock(): bool;
}

/** A lock with a lease that can be extended. */
interface Extendable extends Held
{
    /** Sets the lease to end this long after now. Returns whether the lock was still held. */
    public function extend(float $leaseSeconds): bool;
}
