<?php
// Tests the cache locks of Laravel.

declare(strict_types=1);

namespace Lockwheel\Clients;

use Illuminate\Cache\Lock;
use Illuminate\Cache\PhpRedisLock;
use Illuminate\Cache\RedisLock;
use Illuminate\Contracts\Cache\LockTimeoutException;
use Illuminate\Contracts\Redis\LimiterTimeoutException;
use Illuminate\Redis\Connections\Connection;
use Illuminate\Redis\Connections\PhpRedisConnection;
use Illuminate\Redis\Connectors\PhpRedisConnector;
use Illuminate\Redis\Connectors\PredisConnector;

final class LaravelContender implements Contender
{
    public function __construct(private readonly Connection $connection)
    {
    }

    public function tryLock(string $key, float $leaseSeconds): ?Held
    {
        $lock = $this->lock($key, (int) $leaseSeconds);
        return $lock->get() ? new LaravelHeld($lock) : null;
    }

    public function lock(string $key, int $seconds, ?string $owner = null): Lock
    {
        return $this->connection instanceof PhpRedisConnection
            ? new PhpRedisLock($this->connection, $key, $seconds, $owner)
            : new RedisLock($this->connection, $key, $seconds, $owner);
    }
}

final class LaravelHeld implements Held
{
    public function __construct(private readonly Lock $lock)
    {
    }

    public function unlock(): bool
    {
        return $this->lock->release();
    }
}

final class LaravelTest extends LockSuite
{
    protected function library(): string
    {
        return 'Laravel';
    }

    protected function version(): string
    {
        return self::packaged('php-illuminate-cache');
    }

    /** Its leases are whole seconds. */
    protected function short(): float
    {
        return 1.0;
    }

    /** Each client, and a function that opens a connection. */
    public function clients(): array
    {
        [$host, $port] = Servers::main();
        $where = ['host' => $host, 'port' => $port];
        return [
            'phpredis' => [fn () => (new PhpRedisConnector())->connect($where, [])],
            'predis' => [fn () => (new PredisConnector())->connect($where, [])],
        ];
    }

    private static function contender(callable $connect): callable
    {
        return fn () => new LaravelContender($connect());
    }

    /** @dataProvider clients */
    #[Behaviour('%s: of many contenders one holds the lock')]
    public function testExcludes(callable $connect): void
    {
        $this->excludes(self::contender($connect));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a lease ends at its time, not before')]
    public function testExpires(callable $connect): void
    {
        $this->expires(self::contender($connect));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a released lock is free at once')]
    public function testReleases(callable $connect): void
    {
        $this->releases(self::contender($connect));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: a late release takes nothing from the next holder')]
    public function testRefusesAReleaseByAnotherOwner(callable $connect): void
    {
        $this->refusesLateRelease(self::contender($connect));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: another process that has the owner\'s name releases the lock')]
    public function testHandsOver(callable $connect): void
    {
        $key = Servers::unique('laravel');
        $lock = (new LaravelContender($connect()))->lock($key, 60);
        self::assertTrue($lock->get());
        $other = new LaravelContender($connect());
        self::assertFalse($other->lock($key, 60, 'another')->release());
        self::assertTrue($other->lock($key, 60, $lock->owner())->release());
        self::assertTrue($other->lock($key, 60)->get());
    }

    /** @dataProvider clients */
    #[Behaviour('%s: block waits for the release, and throws after its limit')]
    public function testBlocks(callable $connect): void
    {
        $key = Servers::unique('laravel');
        $lock = (new LaravelContender($connect()))->lock($key, 60);
        self::assertTrue($lock->get());
        $waiter = fn () => (new LaravelContender($connect()))->lock($key, 60);
        try {
            $waiter()->betweenBlockedAttemptsSleepFor(20)->block(1);
            self::fail('two hold it');
        } catch (LockTimeoutException) {
        }
        self::together(2, function (int $number) use ($lock, $waiter): void {
            if ($number === 0) {
                usleep(300_000);
                self::assertTrue($lock->release());
                return;
            }
            self::assertTrue($waiter()->betweenBlockedAttemptsSleepFor(20)->block(20));
        });
    }

    /** @dataProvider clients */
    #[Behaviour('%s: funnel lets in as many as it should at a time')]
    public function testFunnels(callable $connect): void
    {
        $key = Servers::unique('laravel');
        $connection = $connect();
        $nested = fn (callable $then) => $connection->funnel($key)->limit(2)->releaseAfter(60)
            ->block(0)->then($then, fn (LimiterTimeoutException $_) => 'refused');
        $third = $nested(fn () => $nested(fn () => $nested(fn () => 'let in')));
        self::assertSame('refused', $third);
        self::assertSame('let in', $nested(fn () => $nested(fn () => 'let in')));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: throttle lets in as many as it should in a while')]
    public function testThrottles(callable $connect): void
    {
        $key = Servers::unique('laravel');
        $connection = $connect();
        $enter = fn () => $connection->throttle($key)->allow(3)->every(2)->block(0)
            ->then(fn () => true, fn (LimiterTimeoutException $_) => false);
        // It counts from the client's clock truncated to seconds, and compares with microseconds.
        [$before, $ends] = [self::moment(), time() + 2];
        self::assertSame([true, true, true], [$enter(), $enter(), $enter()]);
        // If the period has passed on a slow machine, the fourth call is the first of the next period.
        while (!$enter()) {
            self::assertLessThan(self::GENEROUS, self::since($before), 'the lock is free again');
            usleep(20_000);
        }
        self::assertGreaterThan($ends, microtime(true), 'too many were let in');
    }
}
