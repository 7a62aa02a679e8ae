"use strict";
// The exports of lockwheel/locks for require. locks.d.ts documents them.

module.exports = require("./lib/lock.js");
