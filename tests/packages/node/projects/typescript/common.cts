// The types for those who require.

import leasehold = require("leasehold");

const server: Promise<leasehold.Server> = leasehold.start({ frozen: true });

export = server;
