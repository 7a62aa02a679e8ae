#!/usr/bin/env node
// The command `lockwheel`: runs the carried program with the same arguments. It ignores
// LOCKWHEEL_BINARY and PATH, because both may name this command.
"use strict";

const { spawn } = require("node:child_process");

const { carriedProgram, missingProgram } = require("../lib/program.js");

const SIGNALS = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"];

const program = carriedProgram();
const words = process.argv.slice(2);
if (!program) {
  console.error(`lockwheel: ${missingProgram()}`);
  process.exitCode = 1;
} else if (process.execve) {
  // Node 22.15 and later. The process becomes the program.
  process.execve(program, [program, ...words]);
} else {
  runAsChild();
}

/** Passes signals on to the program, and ends as the program ends. */
function runAsChild() {
  const child = spawn(program, words, { stdio: "inherit" });
  const forward = (signal) => child.kill(signal);
  for (const signal of SIGNALS) process.on(signal, forward);
  child.on("error", (error) => {
    console.error(`lockwheel: cannot run ${program}: ${error.message}`);
    process.exitCode = 1;
  });
  child.on("exit", (status, signal) => {
    if (signal) {
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
    } else {
      process.exitCode = status;
    }
  });
}
