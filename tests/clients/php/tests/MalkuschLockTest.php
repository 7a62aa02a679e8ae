<?php
// Tests the mutexes of malkusch/lock.

declare(strict_types=1);

namespace Lockwheel\Clients;

use malkusch\lock\exception\LockAcquireException;
use malkusch\lock\exception\TimeoutException;
use malkusch\lock\mutex\Mutex;
use malkusch\lock\mutex\PHPRedisMutex;
use malkusch\lock\mutex\PredisMutex;

/** A mutex that runs a function. It has no single attempt; its lease ends the lock of a dead process. */
final class MalkuschLockTest extends LockSuite
{
    protected function library(): string
    {
        return 'malkusch/lock';
    }

    protected function version(): string
    {
        return self::packaged('php-malkusch-lock');
    }

    /** Each client, and a function that creates a mutex. */
    public function clients(): array
    {
        return [
            'phpredis' => [function (string $key, int $seconds = 20): Mutex {
                $redis = new \Redis();
                $redis->connect(...Servers::main());
                return new PHPRedisMutex([$redis], $key, $seconds);
            }],
            'predis' => [fn (string $key, int $seconds = 20): Mutex
                => self::overPredis([Servers::main()], $key, $seconds)],
        ];
    }

    private static function overPredis(array $addresses, string $key, int $seconds): Mutex
    {
        $open = fn (array $it) => new \Predis\Client(['host' => $it[0], 'port' => $it[1]]);
        return new PredisMutex(array_map($open, $addresses), $key, $seconds);
    }

    private function excludesBy(callable $mutex): void
    {
        $key = Servers::unique('malkusch');
        $number = tempnam(sys_get_temp_dir(), 'number');
        file_put_contents($number, '0');
        self::together(4, function () use ($mutex, $key, $number): void {
            $mutex = $mutex($key);
            for ($round = 0; $round < 6; ++$round) {
                $mutex->synchronized(function () use ($number): void {
                    $read = (int) file_get_contents($number);
                    usleep(1000);
                    file_put_contents($number, (string) ($read + 1));
                });
            }
        });
        self::assertSame('24', file_get_contents($number));
        unlink($number);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: of many contenders one holds the lock')]
    public function testExcludes(callable $mutex): void
    {
        $this->excludesBy($mutex);
    }

    /** @dataProvider clients */
    #[Behaviour('%s: the lock of one that died ends at its time, not before')]
    public function testExpires(callable $mutex): void
    {
        $key = Servers::unique('malkusch');
        $before = self::moment();
        try {
            self::together(1, function () use ($mutex, $key): void {
                // It keeps its lock a second longer than the given limit.
                $mutex($key, 1)->synchronized(fn () => posix_kill(posix_getpid(), SIGKILL));
            });
            self::fail('it did not die');
        } catch (\PHPUnit\Framework\ExpectationFailedException) {
        }
        $mutex($key)->synchronized(fn () => $this->isDue($before, 2.0));
    }

    /** @dataProvider clients */
    #[Behaviour('%s: waiting longer than the limit throws')]
    public function testTellsOfTheWait(callable $mutex): void
    {
        $key = Servers::unique('malkusch');
        $thrown = $mutex($key)->synchronized(function () use ($mutex, $key): bool {
            try {
                $mutex($key, 1)->synchronized(fn () => self::fail('two hold it'));
            } catch (TimeoutException) {
                return true;
            }
            return false;
        });
        self::assertTrue($thrown);
    }

    #[Behaviour('three servers, one dead: two of three still make a lock')]
    public function testOneDead(): void
    {
        $three = Servers::disposable(Servers::OF_MALKUSCH_WITH_ONE_DEAD);
        Servers::end($three[0]);
        $this->excludesBy(fn (string $key) => self::overPredis($three, $key, 20));
    }

    #[Behaviour('three servers, two dead: no lock is granted')]
    public function testWithoutQuorum(): void
    {
        $three = Servers::disposable(Servers::OF_MALKUSCH_WITHOUT_QUORUM);
        Servers::end($three[0]);
        Servers::end($three[2]);
        $this->expectException(LockAcquireException::class);
        $mutex = self::overPredis($three, Servers::unique('malkusch'), 20);
        $mutex->synchronized(fn () => self::fail('one is not most of three'));
    }
}
