<?php
// Tests the Redis store of Symfony's Lock component.

declare(strict_types=1);

namespace Lockwheel\Clients;

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Lock;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\PersistingStoreInterface;
use Symfony\Component\Lock\Store\CombinedStore;
use Symfony\Component\Lock\Store\RedisStore;
use Symfony\Component\Lock\Strategy\ConsensusStrategy;

final class SymfonyContender implements Contender
{
    public function __construct(private readonly PersistingStoreInterface $store)
    {
    }

    public function tryLock(string $key, float $leaseSeconds): ?Held
    {
        $lock = $this->lock($key, $leaseSeconds);
        try {
            return $lock->acquire() ? new SymfonyHeld($lock) : null;
        } catch (LockExpiredException) {
            return null;
        }
    }

    public function lock(string $key, float $leaseSeconds): Lock
    {
        return (new LockFactory($this->store))->createLock($key, $leaseSeconds, false);
    }
}

final class SymfonyHeld implements Extendable
{
    public function __construct(private readonly Lock $lock)
    {
    }

    public function unlock(): bool
    {
        $wasHeld = $this->lock->isAcquired();
        $this->lock->release();
        return $wasHeld;
    }

    public function extend(float $leaseSeconds): bool
    {
        try {
            $this->lock->refresh($leaseSeconds);
            return true;
        } catch (LockConflictedException | LockExpiredException) {
            return false;
        }
    }
}

final class SymfonyLockTest extends LockSuite
{
    protected function library(): string
    {
        return 'Symfony Lock';
    }

    protected function version(): string
    {
        return self::packaged('php-symfony-lock');
    }

    /**
     * The library truncates the wall clock to whole milliseconds at the start and the end of a
     * lease. On a clock truncated in the same way, no lease is too short.
     */
    protected static function moment(): int
    {
        ['sec' => $seconds, 'usec' => $micros] = gettimeofday();
        return ($seconds * 1000 + intdiv($micros, 1000)) * 1_000_000;
    }

    /** Each client, and a function that creates a contender. */
    public function clients(): array
    {
        return [
            'phpredis' => [fn () => self::over('phpredis', [Servers::main()])],
            'predis' => [fn () => self::over('predis', [Servers::main()])],
        ];
    }

    private static function over(string $client, array $addresses): SymfonyContender
    {
        $stores = array_map(fn (array $it) => new RedisStore(self::open($client, $it)), $addresses);
        $combined = new CombinedStore($stores, new ConsensusStrategy());
        return new SymfonyContender(count($stores) === 1 ? $stores[0] : $combined);
    }

    private static function open(string $client, array $address): \Redis|\Predis\Client
    {
        if ($client === 'predis') {
            return new \Predis\Client(['host' => $address[0], 'port' => $address[1]]);
        }
        $redis = new \Redis();
        $redis->connect(...$address);
        return $redis;
    }

    /** @dataProvider clients */
    #[Behaviour('%s: of many contenders one holds the lock')]
    public function testExcludes(callable $contender): void
    {
        $this->excludes($contender);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a lease ends at its time, not before')]
    public function testExpires(callable $contender): void
    {
        $this->expires($contender);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a released lock is free at once')]
    public function testReleases(callable $contender): void
    {
        $this->releases($contender);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a late release takes nothing from the next holder')]
    public function testRefusesAReleaseByAnotherOwner(callable $contender): void
    {
        $this->refusesLateRelease($contender);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a refreshed lease ends at its new time')]
    public function testExtends(callable $contender): void
    {
        $this->extends($contender);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a waiter gets the lock when it is released, and not before')]
    public function testWaits(callable $contender): void
    {
        $key = Servers::unique('symfony');
        $lock = $contender()->lock($key, self::LONG);
        self::assertTrue($lock->acquire());
        $released = tempnam(sys_get_temp_dir(), 'released');
        self::together(2, function (int $number) use ($contender, $key, $lock, $released): void {
            if ($number === 0) {
                usleep(300_000);
                file_put_contents($released, 'yes');
                $lock->release();
                return;
            }
            self::assertTrue($contender()->lock($key, self::LONG)->acquire(true));
            self::assertSame('yes', file_get_contents($released), 'two held it');
        });
        unlink($released);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: readers share, a writer waits for all of them')]
    public function testReadersShare(callable $contender): void
    {
        $key = Servers::unique('symfony');
        $lock = fn () => $contender()->lock($key, self::LONG);
        [$one, $two, $writer] = [$lock(), $lock(), $lock()];
        self::assertTrue($one->acquireRead());
        self::assertTrue($two->acquireRead());
        self::assertFalse($writer->acquire(), 'a writer came in among readers');
        $one->release();
        self::assertFalse($writer->acquire(), 'a reader is still there');
        $two->release();
        self::assertTrue($writer->acquire());
        self::assertFalse($one->acquireRead(), 'a reader came in beside a writer');
        $writer->release();
        self::assertTrue($one->acquireRead());
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a lone reader becomes the writer, one of several does not')]
    public function testPromotes(callable $contender): void
    {
        $key = Servers::unique('symfony');
        $lock = fn () => $contender()->lock($key, self::LONG);
        [$one, $two] = [$lock(), $lock()];
        self::assertTrue($one->acquireRead() && $two->acquireRead());
        self::assertFalse($one->acquire(), 'another reads');
        $two->release();
        self::assertTrue($one->acquire());
        self::assertFalse($two->acquireRead(), 'a reader came in beside a writer');
        self::assertTrue($one->acquireRead(), 'the writer becomes a reader');
        self::assertTrue($two->acquireRead());
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a dead reader makes room for a writer when its lease ends')]
    public function testReaderExpires(callable $contender): void
    {
        $key = Servers::unique('symfony');
        [$reader, $lasting] = [$contender(), $contender()];
        $before = self::moment();
        self::assertTrue($reader->lock($key, $this->short())->acquireRead());
        $kept = $lasting->lock($key, self::LONG);
        self::assertTrue($kept->acquireRead());
        $kept->release();
        $this->isGranted($contender(), $key, $before, $this->short());
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a key handed to another process is released there')]
    public function testHandsOver(callable $contender): void
    {
        $name = Servers::unique('symfony');
        $key = new Key($name);
        $store = new RedisStore(self::open((string) $this->dataName(), Servers::main()));
        $lock = (new LockFactory($store))->createLockFromKey($key, self::LONG, false);
        self::assertTrue($lock->acquire());
        $handed = unserialize(serialize($key));
        self::together(1, function () use ($handed): void {
            $store = new RedisStore(self::open((string) $this->dataName(), Servers::main()));
            $lock = (new LockFactory($store))->createLockFromKey($handed, self::LONG, false);
            self::assertTrue($lock->isAcquired());
            $lock->release();
        });
        self::assertNotNull($contender()->tryLock($name, self::LONG), 'it was not released');
    }

    #[Behaviour('CombinedStore, three servers, one dead: two of three still make a lock')]
    public function testOneDead(): void
    {
        $three = Servers::disposable(Servers::OF_SYMFONY_WITH_ONE_DEAD);
        // Predis connects when it is used, so it can be made for a server that is dead.
        $contender = fn () => self::over('predis', $three);
        $key = Servers::unique('symfony');
        $held = $contender()->tryLock($key, self::LONG);
        self::assertNotNull($held);
        Servers::end($three[0]);
        self::assertNull($contender()->tryLock($key, self::LONG), 'it was granted twice');
        self::assertTrue($held->extend(self::LONG), 'two are most of three');
        self::assertTrue($held->unlock());
        $this->releases($contender);
        $this->excludes($contender);
    }

    #[Behaviour('CombinedStore, three servers, two dead: no lock is granted')]
    public function testWithoutQuorum(): void
    {
        $three = Servers::disposable(Servers::OF_SYMFONY_WITHOUT_QUORUM);
        Servers::end($three[0]);
        Servers::end($three[1]);
        $key = Servers::unique('symfony');
        self::assertNull(self::over('predis', $three)->tryLock($key, self::LONG));
        $survivor = self::over('phpredis', [$three[2]]);
        self::assertNotNull($survivor->tryLock($key, self::LONG), 'the refusal left something');
    }
}
