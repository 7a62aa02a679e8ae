<?php
// Tests locks made with Predis.

declare(strict_types=1);

namespace Lockwheel\Clients;

use Predis\Client;
use Predis\Command\ScriptCommand;
use Predis\Transaction\AbortedMultiExecException;

final class PredisRelease extends ScriptCommand
{
    public function getKeysCount()
    {
        return 1;
    }

    public function getScript()
    {
        return "if redis.call('get', KEYS[1]) == ARGV[1] then
            return redis.call('del', KEYS[1]) end return 0";
    }
}

final class PredisExtend extends ScriptCommand
{
    public function getKeysCount()
    {
        return 1;
    }

    public function getScript()
    {
        return "if redis.call('get', KEYS[1]) == ARGV[1] then
            return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
    }
}

/** `SET PX NX` with a token, released and extended by scripts that compare it. */
final class PredisContender implements Contender
{
    public function __construct(private readonly Client $client)
    {
        $commands = $client->getProfile();
        $commands->defineCommand('release', PredisRelease::class);
        $commands->defineCommand('prolong', PredisExtend::class);
    }

    public function tryLock(string $key, float $leaseSeconds): ?Held
    {
        $token = Servers::unique('token');
        $leaseMs = (int) round($leaseSeconds * 1000);
        if ($this->client->set($key, $token, 'PX', $leaseMs, 'NX') === null) {
            return null;
        }
        return new PredisLock($this->client, $key, $token);
    }
}

final class PredisLock implements Extendable
{
    public function __construct(
        private readonly Client $client,
        private readonly string $key,
        private readonly string $token,
    ) {
    }

    public function unlock(): bool
    {
        return $this->client->release($this->key, $this->token) === 1;
    }

    public function extend(float $leaseSeconds): bool
    {
        $leaseMs = (int) round($leaseSeconds * 1000);
        return $this->client->prolong($this->key, $this->token, $leaseMs) === 1;
    }
}

final class PredisTest extends LockSuite
{
    protected function library(): string
    {
        return 'predis';
    }

    protected function version(): string
    {
        return Client::VERSION;
    }

    private static function connect(?array $address = null): Client
    {
        [$host, $port] = $address ?? Servers::main();
        return new Client(['host' => $host, 'port' => $port, 'read_write_timeout' => 30]);
    }

    private static function contender(): Contender
    {
        return new PredisContender(self::connect());
    }

    #[Behaviour('SET PX NX: of many contenders one holds the lock')]
    public function testExcludes(): void
    {
        $this->excludes(self::contender(...));
    }

    #[Behaviour('SET PX NX: a lease ends at its time, not before')]
    public function testExpires(): void
    {
        $this->expires(self::contender(...));
    }

    #[Behaviour('ScriptCommand: a late release takes nothing from the next holder')]
    public function testRefusesAReleaseByAnotherOwner(): void
    {
        $this->refusesLateRelease(self::contender(...));
    }

    #[Behaviour('ScriptCommand: an extended lease ends at its new time')]
    public function testExtends(): void
    {
        $this->extends(self::contender(...));
    }

    #[Behaviour('ScriptCommand: a script that the server has forgotten is sent again')]
    public function testSendsAgain(): void
    {
        $client = self::connect(Servers::disposable(Servers::OF_SCRIPT_FLUSH_PREDIS)[0]);
        $contender = new PredisContender($client);
        for ($round = 0; $round < 3; ++$round) {
            $client->script('flush');
            $held = $contender->tryLock('forgotten', self::LONG);
            self::assertNotNull($held, 'it was not released');
            self::assertTrue($held->unlock());
        }
    }

    #[Behaviour('transaction: concurrent read-modify-writes lose nothing')]
    public function testTransacts(): void
    {
        $key = Servers::unique('predis');
        self::together(4, function () use ($key): void {
            $client = self::connect();
            $options = ['cas' => true, 'watch' => $key, 'retry' => 1000];
            for ($round = 0; $round < 25; ++$round) {
                $client->transaction($options, function ($transaction) use ($key): void {
                    $number = (int) $transaction->get($key);
                    $transaction->multi();
                    $transaction->set($key, $number + 1);
                });
            }
        });
        self::assertSame('100', self::connect()->get($key));
    }

    #[Behaviour('transaction: a change in between aborts it')]
    public function testIsOvertaken(): void
    {
        [$one, $other, $key] = [self::connect(), self::connect(), Servers::unique('predis')];
        $overtaken = function ($transaction) use ($other, $key): void {
            $transaction->get($key);
            $other->set($key, 'overtaken');
            $transaction->multi();
            $transaction->set($key, 'late');
        };
        try {
            $one->transaction(['cas' => true, 'watch' => $key], $overtaken);
            self::fail('the transaction succeeded');
        } catch (AbortedMultiExecException) {
            self::assertSame('overtaken', $one->get($key));
        }
    }

    #[Behaviour('blpop: a waiter is given the token that is put back')]
    public function testBlocks(): void
    {
        $key = Servers::unique('predis');
        self::together(2, function (int $number) use ($key): void {
            $client = self::connect();
            if ($number === 0) {
                self::assertSame([$key, 'token'], $client->blpop([$key], 10));
                return;
            }
            usleep(300_000);
            self::assertSame(1, $client->rpush($key, ['token']));
        });
        self::assertSame(0, self::connect()->llen($key));
    }

    #[Behaviour('pubSubLoop: a waiter is woken by the message of the release')]
    public function testWakesASubscribedWaiter(): void
    {
        [$holder, $key] = [self::contender(), Servers::unique('predis')];
        $held = $holder->tryLock($key, self::LONG);
        $waiter = self::contender();
        self::assertNull($waiter->tryLock($key, self::LONG), 'it was granted twice');
        $publisher = self::connect();
        foreach (self::connect()->pubSubLoop(['subscribe' => $key]) as $message) {
            if ($message->kind === 'subscribe') {
                self::assertTrue($held->unlock());
                self::assertSame(1, $publisher->publish($key, 'free'));
                continue;
            }
            self::assertSame(['message', 'free'], [$message->kind, $message->payload]);
            break;
        }
        self::assertNotNull($waiter->tryLock($key, self::LONG), 'the message came too early');
    }

    #[Behaviour('cluster: of many contenders one holds the lock')]
    public function testCluster(): void
    {
        $address = Servers::optional('REDIS_CLUSTER_URL');
        if ($address === null) {
            self::markTestSkipped('there is no cluster');
        }
        $seeds = ['tcp://' . implode(':', $address)];
        $this->excludes(fn () => new PredisContender(new Client($seeds, ['cluster' => 'redis'])));
    }

    #[Behaviour('sentinel: of many contenders at the master one holds the lock')]
    public function testSentinel(): void
    {
        $address = Servers::optional('REDIS_SENTINEL_URL');
        if ($address === null) {
            self::markTestSkipped('there is no sentinel');
        }
        $sentinels = ['tcp://' . implode(':', $address)];
        $options = ['replication' => 'sentinel', 'service' => 'mymaster'];
        $this->excludes(fn () => new PredisContender(new Client($sentinels, $options)));
    }
}
