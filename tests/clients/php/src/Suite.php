<?php
// The base of all test classes: processes, the report, and the names of behaviours.

declare(strict_types=1);

namespace Lockwheel\Clients;

use PHPUnit\Framework\SkippedTest;
use PHPUnit\Framework\TestCase;

/** The behaviour that a test shows; `%s` is the name of its data set. */
#[\Attribute(\Attribute::TARGET_METHOD)]
final class Behaviour
{
    public function __construct(public readonly string $sentence)
    {
    }
}

/** Reports every test of a library. */
abstract class Suite extends TestCase
{
    abstract protected function library(): string;

    abstract protected function version(): string;

    protected function runTest(): mixed
    {
        try {
            $result = parent::runTest();
        } catch (SkippedTest $reason) {
            $this->report('skipped', $reason->getMessage());
            throw $reason;
        } catch (\Throwable $reason) {
            $this->report('failed', $reason->getMessage());
            throw $reason;
        }
        $this->report('passed', null);
        return $result;
    }

    /** The version of a package of Debian, without what Debian adds to it. */
    protected static function packaged(string $package): string
    {
        $version = shell_exec('dpkg-query --show --showformat=\'${Version}\' ' . $package);
        return preg_replace('/[+-].*$/', '', (string) $version);
    }

    /** Runs a function in so many processes at once, and fails if it fails in any of them. */
    protected static function together(int $count, callable $work): void
    {
        $children = [];
        for ($number = 0; $number < $count; ++$number) {
            [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            if (pcntl_fork() === 0) {
                try {
                    $work($number);
                    fwrite($theirs, 'done');
                } catch (\Throwable $failure) {
                    fwrite($theirs, $failure->getMessage());
                }
                // Nothing that this process shares with its parent may be closed here.
                posix_kill(posix_getpid(), SIGKILL);
            }
            fclose($theirs);
            $children[] = $ours;
        }
        $said = array_map(stream_get_contents(...), $children);
        while (pcntl_wait($status) > 0) {
        }
        foreach ($said as $word) {
            self::assertTrue($word === 'done', $word === '' ? 'a process died' : $word);
        }
    }

    private function report(string $outcome, ?string $reason): void
    {
        $path = getenv('SUITE_REPORT');
        if (!$path) {
            return;
        }
        $method = new \ReflectionMethod($this, $this->getName(false));
        $behaviour = $method->getAttributes(Behaviour::class)[0]->newInstance();
        $line = [
            'library' => $this->library(),
            'version' => $this->version(),
            'behaviour' => sprintf($behaviour->sentence, (string) $this->dataName()),
            'outcome' => $outcome,
        ];
        if ($reason !== null) {
            $line['reason'] = $reason;
        }
        $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE;
        file_put_contents($path, json_encode($line, $flags) . "\n", FILE_APPEND | LOCK_EX);
    }
}
