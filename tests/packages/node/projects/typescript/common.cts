// The types with require.

import lockwheel = require("lockwheel");

const server: Promise<lockwheel.Server> = lockwheel.start({ frozen: true });

export = server;
