<?php
// Loads the libraries, as Debian installs them; fails where one is missing.

declare(strict_types=1);

// Some of them are older than this PHP.
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);

if (!extension_loaded('redis') || !extension_loaded('pcntl')) {
    exit(1);
}
require_once 'Predis/autoload.php';
require_once 'Symfony/Component/Lock/autoload.php';
require_once 'Malkusch/Lock/autoload.php';
require_once 'Illuminate/Redis/autoload.php';
require_once 'Illuminate/Cache/autoload.php';
