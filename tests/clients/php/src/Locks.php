<?php

declare(strict_types=1);

namespace Lockwheel\Clients;

/** A client that takes locks, on a connection of its own. */
interface Contender
{
    /** Takes the lock if it is free; null if it is not. */
    public function tryLock(string $key, float $leaseSeconds): ?Held;
}

/** A held lock. */
interface Held
{
    /** Says whether it was still the holder's. */
    public function unlock(): bool;
}

/** A lock with a lease that can be prolonged. */
interface Extendable extends Held
{
    /** Lets it end so much later than now, and says whether it was still the holder's. */
    public function extend(float $leaseSeconds): bool;
}
