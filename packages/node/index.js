"use strict";
// What the package gives; index.d.ts documents it.

const { ReplyError } = require("./lib/resp.js");
const { Server, serverBetween, start } = require("./lib/server.js");

module.exports = { ReplyError, Server, serverBetween, start };
