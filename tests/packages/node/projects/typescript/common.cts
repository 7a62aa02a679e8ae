// The types with require.

import lockwheel = require("lockwheel");
import locks = require("lockwheel/locks");

const server: Promise<lockwheel.Server> = lockwheel.start({ frozen: true });

const options: locks.LockOptions = { ttlMs: 30_000 };

export = { server, options };
