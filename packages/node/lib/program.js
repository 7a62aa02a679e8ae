"use strict";
// Which program is the server.

const { accessSync, constants, statSync } = require("node:fs");
const { delimiter, dirname, join } = require("node:path");

const SYSTEM = `${process.platform}-${process.arch}`;
const PLATFORM_PACKAGE = `@lockwheel/${SYSTEM}`;

/** The path of the server's program: the one chosen, the one carried, or the one on PATH. */
function findProgram() {
  const chosen = process.env.LOCKWHEEL_BINARY;
  if (chosen) {
    if (isProgram(chosen)) return chosen;
    throw new Error(`LOCKWHEEL_BINARY is ${chosen}, and there is no program`);
  }
  const found = carried() ?? onPath();
  if (found) return found;
  throw new Error(
    `there is no lockwheel for ${SYSTEM}: the package ${PLATFORM_PACKAGE} is not installed ` +
      "(is there one for this system, and were optional dependencies left out?), " +
      "and there is none on PATH. Set LOCKWHEEL_BINARY to the path of the program",
  );
}

function carried() {
  try {
    return join(dirname(require.resolve(`${PLATFORM_PACKAGE}/package.json`)), "bin", "lockwheel");
  } catch (error) {
    if (error.code === "MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

function onPath() {
  const folders = (process.env.PATH ?? "").split(delimiter).filter(Boolean);
  return folders.map((folder) => join(folder, "lockwheel")).find(isProgram);
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

module.exports = { findProgram };
