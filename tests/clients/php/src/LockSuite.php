<?php
// The behaviours that the tests of all PHP libraries share.

declare(strict_types=1);

namespace Lockwheel\Clients;

/**
 * The properties of every lock: mutual exclusion, the lease to the millisecond, release
 * and extension by the owner alone.
 */
abstract class LockSuite extends Suite
{
    /** A lease that does not end within a test. */
    protected const LONG = 60.0;
    /** How late a lease may end or a waiter be woken on a machine that is slow and busy. */
    protected const GENEROUS = 10.0;

    /** The time before the end of a lease in which a test polls without pauses. */
    private const NEAR = 0.03;
    private const WORKERS = 6;
    private const ROUNDS = 8;

    /** A lease that ends within a test. */
    protected function short(): float
    {
        return 0.6;
    }

    /** Many contenders increment a number in two steps: if two hold the lock, an increment is lost. */
    protected function excludes(callable $contender): void
    {
        $key = Servers::unique('excludes');
        $number = tempnam(sys_get_temp_dir(), 'number');
        file_put_contents($number, '0');
        self::together(self::WORKERS, function () use ($contender, $key, $number): void {
            $contender = $contender();
            for ($round = 0; $round < self::ROUNDS; ++$round) {
                $held = self::wait($contender, $key, self::LONG);
                $inside = @fopen("$number.inside", 'x');
                self::assertNotFalse($inside, 'two hold the lock');
                $read = (int) file_get_contents($number);
                usleep(1000);
                file_put_contents($number, (string) ($read + 1));
                unlink("$number.inside");
                self::assertTrue($held->unlock(), 'the lock was lost while it was held');
            }
        });
        self::assertSame((string) (self::WORKERS * self::ROUNDS), file_get_contents($number));
        unlink($number);
    }

    /** The lock is granted when its lease has ended, and not before. */
    protected function expires(callable $contender): void
    {
        [$holder, $other, $key] = [$contender(), $contender(), Servers::unique('expires')];
        [, $before] = self::taken($holder, $key, $this->short());
        $this->isGranted($other, $key, $before, $this->short());
    }

    /** A released lock is free at once, however long its lease was. */
    protected function releases(callable $contender): void
    {
        [$holder, $other, $key] = [$contender(), $contender(), Servers::unique('releases')];
        $held = $holder->tryLock($key, self::LONG);
        self::assertNotNull($held, 'it is free');
        self::assertNull($other->tryLock($key, self::LONG), 'it was granted twice');
        self::assertTrue($held->unlock(), 'it was the holder\'s');
        self::assertNotNull($other->tryLock($key, self::LONG), 'it was not released');
    }

    /** A release after the end of the lease changes nothing for the next holder. */
    protected function refusesLateRelease(callable $contender): void
    {
        [$late, $next, $third] = [$contender(), $contender(), $contender()];
        $key = Servers::unique('late-release');
        [$ended] = self::taken($late, $key, $this->short());
        $kept = self::wait($next, $key, self::LONG);
        if ($ended instanceof Extendable) {
            self::assertFalse($ended->extend(self::LONG), 'what another holds was extended');
        }
        self::assertFalse($ended->unlock(), 'the release by the late holder succeeded');
        self::assertNull($third->tryLock($key, self::LONG), 'it was taken from the next holder');
        self::assertTrue($kept->unlock(), 'the next holder had lost it');
    }

    /** An extension counts from its own moment; no client gets the lock before. */
    protected function extends(callable $contender): void
    {
        [$holder, $other, $key] = [$contender(), $contender(), Servers::unique('extends')];
        $lease = 2 * $this->short();
        while (true) {
            [$held, $begin] = self::taken($holder, $key, $lease);
            usleep((int) ($this->short() / 4 * 1e6));
            $before = static::moment();
            if ($held->extend(3 * $this->short())) {
                break;
            }
            // A late extension is refused: if the machine stalled for that long, this is repeated.
            self::assertGreaterThanOrEqual($lease, self::since($begin), 'it was the holder\'s');
        }
        $this->isGranted($other, $key, $before, 3 * $this->short());
    }

    /**
     * Acquires a free lock and returns the time before the request. Some libraries discard a lock
     * if acquiring it took as long as the lease: if the machine stalled so long, this tries again.
     */
    protected static function taken(Contender $contender, string $key, float $lease): array
    {
        while (true) {
            $before = static::moment();
            $held = $contender->tryLock($key, $lease);
            if ($held !== null) {
                return [$held, $before];
            }
            self::assertGreaterThanOrEqual($lease, self::since($before), 'it is free');
        }
    }

    /**
     * Waits for a lock with a lease that began after `before`; polls without pauses near its end.
     * Fails if the lock is granted too early.
     */
    protected function isGranted(
        Contender $contender,
        string $key,
        int $before,
        float $lease,
    ): void {
        usleep((int) max(0, ($lease - self::NEAR - self::since($before)) * 1e6));
        while ($contender->tryLock($key, self::LONG) === null) {
            self::assertLessThan($lease + self::GENEROUS, self::since($before), 'it did not end');
        }
        $this->isDue($before, $lease);
    }

    /** Tries until the lock is granted. */
    protected static function wait(Contender $contender, string $key, float $lease): Held
    {
        $begin = static::moment();
        while (true) {
            $held = $contender->tryLock($key, $lease);
            if ($held !== null) {
                return $held;
            }
            self::assertLessThan(3 * self::GENEROUS, self::since($begin), 'it never came free');
            usleep(2000);
        }
    }

    /** Fails if a lease ended early or far too late. */
    protected function isDue(int $before, float $lease): void
    {
        $elapsed = self::since($before);
        self::assertGreaterThanOrEqual($lease, $elapsed, 'the lease ended too early');
        self::assertLessThan($lease + self::GENEROUS, $elapsed, 'the lease did not end');
    }

    /** Now, in nanoseconds of the clock that leases are measured by. */
    protected static function moment(): int
    {
        return hrtime(true);
    }

    /** Seconds since a moment. */
    protected static function since(int $before): float
    {
        return (static::moment() - $before) / 1e9;
    }
}
