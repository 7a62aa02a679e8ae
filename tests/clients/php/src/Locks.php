<?php

declare(strict_types=1);

namespace Lockwheel\Clients;

/** One who wants locks, with a connection of its own. */
interface Contender
{
    /** Takes the lock if it is free; null if it is not. */
    public function tryLock(string $key, float $leaseSeconds): ?Held;
}

/** A lock in somebody's hands. */
interface Held
{
    /** Says whether it was still the holder's. */
    public function unlock(): bool;
}

/** One whose lease can be prolonged. */
interface Extendable extends Held
{
    /** Lets it end so much later than now, and says whether it was still the holder's. */
    public function extend(float $leaseSeconds): bool;
}
