"use strict";
// The exports of the package for require. index.d.ts documents them.

const { ReplyError } = require("./lib/resp.js");
const { Server, serverBetween, start } = require("./lib/server.js");

module.exports = { ReplyError, Server, serverBetween, start };
