<?php
// What PHPUnit loads before the tests.

declare(strict_types=1);

require_once __DIR__ . '/libraries.php';
require_once __DIR__ . '/Servers.php';
require_once __DIR__ . '/Locks.php';
require_once __DIR__ . '/Suite.php';
require_once __DIR__ . '/LockSuite.php';
