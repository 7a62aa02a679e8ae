<?php
// The servers, from environment variables.

declare(strict_types=1);

namespace Lockwheel\Clients;

/** The servers, from environment variables. */
final class Servers
{
    // Servers of REDIS_SERVERS that only one test uses, since it stops or changes them.
    public const OF_SYMFONY_WITH_ONE_DEAD = [0, 3];
    public const OF_SYMFONY_WITHOUT_QUORUM = [3, 3];
    public const OF_MALKUSCH_WITH_ONE_DEAD = [6, 3];
    public const OF_MALKUSCH_WITHOUT_QUORUM = [9, 3];
    /** Their scripts are flushed. */
    public const OF_SCRIPT_FLUSH_PHPREDIS = [12, 1];
    public const OF_SCRIPT_FLUSH_PREDIS = [13, 1];

    /** The host and port of the server that most tests share. */
    public static function main(): array
    {
        return self::optional('REDIS_URL') ?? throw new \LogicException('REDIS_URL is not set');
    }

    /** Hosts and ports of servers that a test may stop. */
    public static function disposable(array $which): array
    {
        $urls = explode(',', (string) getenv('REDIS_SERVERS'));
        return array_map(self::address(...), array_slice($urls, $which[0], $which[1]));
    }

    /** The host and port of a server that is not always available. */
    public static function optional(string $variable): ?array
    {
        $url = getenv($variable);
        return $url ? self::address($url) : null;
    }

    /** Stops a server, and waits until its port is closed. */
    public static function end(array $address): void
    {
        [$host, $port] = $address;
        $connection = fsockopen($host, $port);
        fwrite($connection, "SHUTDOWN NOSAVE\r\n");
        stream_get_contents($connection);
        while (@fsockopen($host, $port)) {
            usleep(10_000);
        }
    }

    /** A name that no other test uses, in this run of the suite or an earlier one. */
    public static function unique(string $prefix): string
    {
        return $prefix . ':' . bin2hex(random_bytes(8));
    }

    private static function address(string $url): array
    {
        $parts = parse_url($url);
        return [$parts['host'], $parts['port']];
    }
}
