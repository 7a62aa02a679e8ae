"use strict";
// The exports of the package for require. index.d.ts documents them.

const { CheckError } = require("./lib/journal.js");
const { ReplyError } = require("./lib/resp.js");
const { Server, serverBetween, start } = require("./lib/server.js");

module.exports = { CheckError, ReplyError, Server, serverBetween, start };
