<?php
// Tests locks made with phpredis, and its session locks.

declare(strict_types=1);

namespace Lockwheel\Clients;

/** `SET NX PX` with a token, released and extended by scripts that compare it. */
final class PhpredisContender implements Contender
{
    public function __construct(private readonly \Redis|\RedisCluster $redis)
    {
    }

    public function tryLock(string $key, float $leaseSeconds): ?Held
    {
        $token = Servers::unique('token');
        $leaseMs = (int) round($leaseSeconds * 1000);
        if ($this->redis->set($key, $token, ['nx', 'px' => $leaseMs]) !== true) {
            return null;
        }
        return new PhpredisLock($this->redis, $key, $token);
    }
}

final class PhpredisLock implements Extendable
{
    private const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then
        return redis.call('del', KEYS[1]) end return 0";
    private const EXTEND = "if redis.call('get', KEYS[1]) == ARGV[1] then
        return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";

    public function __construct(
        private readonly \Redis|\RedisCluster $redis,
        private readonly string $key,
        private readonly string $token,
    ) {
    }

    public function unlock(): bool
    {
        return $this->redis->eval(self::RELEASE, [$this->key, $this->token], 1) === 1;
    }

    public function extend(float $leaseSeconds): bool
    {
        $leaseMs = (int) round($leaseSeconds * 1000);
        return $this->redis->eval(self::EXTEND, [$this->key, $this->token, $leaseMs], 1) === 1;
    }
}

final class PhpredisTest extends LockSuite
{
    protected function library(): string
    {
        return 'phpredis';
    }

    protected function version(): string
    {
        return phpversion('redis');
    }

    private static function connect(?array $address = null): \Redis
    {
        $redis = new \Redis();
        $redis->connect(...($address ?? Servers::main()));
        return $redis;
    }

    private static function contender(): Contender
    {
        return new PhpredisContender(self::connect());
    }

    #[Behaviour('SET NX PX: of many contenders one holds the lock')]
    public function testExcludes(): void
    {
        $this->excludes(self::contender(...));
    }

    #[Behaviour('SET NX PX: a lease ends at its time, not before')]
    public function testExpires(): void
    {
        $this->expires(self::contender(...));
    }

    #[Behaviour('eval: a late release takes nothing from the next holder')]
    public function testRefusesAReleaseByAnotherOwner(): void
    {
        $this->refusesLateRelease(self::contender(...));
    }

    #[Behaviour('eval: an extended lease ends at its new time')]
    public function testExtends(): void
    {
        $this->extends(self::contender(...));
    }

    #[Behaviour('evalSha: an unknown script fails with NOSCRIPT')]
    public function testForgets(): void
    {
        $redis = self::connect(Servers::disposable(Servers::OF_SCRIPT_FLUSH_PHPREDIS)[0]);
        $script = "return redis.call('incr', KEYS[1])";
        for ($expected = 1; $expected <= 3; ++$expected) {
            self::assertFalse($redis->evalSha(sha1($script), ['number'], 1));
            self::assertStringStartsWith('NOSCRIPT', $redis->getLastError());
            $redis->clearLastError();
            self::assertSame(sha1($script), $redis->script('load', $script));
            self::assertSame($expected, $redis->evalSha(sha1($script), ['number'], 1));
            self::assertTrue($redis->script('flush'));
        }
    }

    #[Behaviour('watch, multi: concurrent read-modify-writes lose nothing')]
    public function testTransacts(): void
    {
        $key = Servers::unique('phpredis');
        self::together(4, function () use ($key): void {
            $redis = self::connect();
            for ($round = 0; $round < 25; ++$round) {
                do {
                    $redis->watch($key);
                    $number = (int) $redis->get($key);
                    $set = $redis->multi()->set($key, (string) ($number + 1))->exec();
                } while ($set === false);
                self::assertSame([true], $set);
            }
        });
        self::assertSame('100', self::connect()->get($key));
    }

    #[Behaviour('blPop: a token in a list lets in one waiter at a time')]
    public function testBlocks(): void
    {
        [$first, $key] = [self::connect(), Servers::unique('phpredis')];
        $marker = sys_get_temp_dir() . '/' . $key;
        self::assertSame(1, $first->rPush($key, 'token'));
        self::together(5, function () use ($key, $marker): void {
            $redis = self::connect();
            for ($round = 0; $round < 10; ++$round) {
                self::assertSame([$key, 'token'], $redis->blPop([$key], 10));
                self::assertNotFalse(@fopen($marker, 'x'), 'two hold the token');
                usleep(1000);
                unlink($marker);
                $redis->rPush($key, 'token');
            }
        });
        self::assertSame(1, $first->lLen($key));
    }

    #[Behaviour('subscribe: a waiter is woken by the message of the release')]
    public function testWakesASubscribedWaiter(): void
    {
        [$holder, $key] = [self::contender(), Servers::unique('phpredis')];
        $held = $holder->tryLock($key, self::LONG);
        self::together(2, function (int $number) use ($held, $key): void {
            if ($number === 0) {
                // Subscribers are counted, so the message is sent once there is one.
                $redis = self::connect();
                while ((int) $redis->pubsub('numsub', [$key])[$key] !== 1) {
                    usleep(1000);
                }
                self::assertTrue($held->unlock());
                self::assertSame(1, $redis->publish($key, 'free'));
                return;
            }
            $waiter = self::contender();
            self::assertNull($waiter->tryLock($key, self::LONG), 'it was granted twice');
            $redis = self::connect();
            $redis->setOption(\Redis::OPT_READ_TIMEOUT, self::GENEROUS);
            $received = null;
            try {
                $redis->subscribe([$key], function ($redis, $_, $message) use (&$received): void {
                    $received = $message;
                    // In this version the only way to stop listening.
                    $redis->close();
                });
            } catch (\RedisException) {
            }
            self::assertSame('free', $received);
            self::assertNotNull($waiter->tryLock($key, self::LONG), 'the message came too early');
        });
    }

    #[Behaviour('session locking: of many requests in a session one runs at a time')]
    public function testLocksSessions(): void
    {
        [$host, $port] = Servers::main();
        $settings = [
            'session.save_handler=redis',
            "session.save_path=tcp://$host:$port",
            'redis.session.locking_enabled=1',
            'redis.session.lock_retries=-1',
            'redis.session.lock_wait_time=2000',
        ];
        $id = bin2hex(random_bytes(16));
        self::together(5, function () use ($settings, $id): void {
            // A session cannot start after output was written, so a new process starts it.
            $command = [PHP_BINARY];
            foreach ($settings as $setting) {
                array_push($command, '-d', $setting);
            }
            array_push($command, __DIR__ . '/../src/session_requests.php', $id);
            $process = proc_open($command, [1 => ['pipe', 'w']], $pipes);
            self::assertSame('', stream_get_contents($pipes[1]));
            self::assertSame(0, proc_close($process));
        });
        $session = self::connect()->get("PHPREDIS_SESSION:$id");
        self::assertSame('number|i:40;', $session);
    }

    #[Behaviour('RedisCluster: of many contenders one holds the lock')]
    public function testCluster(): void
    {
        $address = Servers::optional('REDIS_CLUSTER_URL');
        if ($address === null) {
            self::markTestSkipped('there is no cluster');
        }
        $seed = implode(':', $address);
        $this->excludes(fn () => new PhpredisContender(new \RedisCluster(null, [$seed])));
    }

    #[Behaviour('RedisSentinel: of many contenders at the master one holds the lock')]
    public function testSentinel(): void
    {
        $address = Servers::optional('REDIS_SENTINEL_URL');
        if ($address === null) {
            self::markTestSkipped('there is no sentinel');
        }
        $this->excludes(function () use ($address): Contender {
            [$host, $port] = (new \RedisSentinel(...$address))->getMasterAddrByName('mymaster');
            return new PhpredisContender(self::connect([$host, (int) $port]));
        });
    }
}
