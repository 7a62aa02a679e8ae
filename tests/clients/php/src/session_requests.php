<?php
// Adds eight to a number in a session, one in each of eight requests.

declare(strict_types=1);

ini_set('session.use_cookies', '0');
ini_set('session.cache_limiter', '');
for ($request = 0; $request < 8; ++$request) {
    session_id($argv[1]);
    session_start();
    $read = $_SESSION['number'] ?? 0;
    usleep(1000);
    $_SESSION['number'] = $read + 1;
    session_write_close();
}
