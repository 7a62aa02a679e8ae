"use strict";
// Finds the server program.

const { accessSync, constants, statSync } = require("node:fs");
const { delimiter, dirname, join } = require("node:path");

const SYSTEM = `${process.platform}-${process.arch}`;
const PLATFORM_PACKAGE = `@lockwheel/${SYSTEM}`;

/** The path of the program: named by LOCKWHEEL_BINARY, carried, or on PATH. */
function findProgram() {
  const chosen = process.env.LOCKWHEEL_BINARY;
  if (chosen) {
    if (isProgram(chosen)) return chosen;
    throw new Error(`LOCKWHEEL_BINARY is ${chosen}, which is not an executable file`);
  }
  const found = carriedProgram() ?? onPath();
  if (found) return found;
  throw new Error(
    `${missingProgram()}, and there is no lockwheel on PATH. ` +
      "Install that package or set LOCKWHEEL_BINARY to the path of the program",
  );
}

/** The message if the platform's package is not installed. */
function missingProgram() {
  return (
    `there is no lockwheel for ${SYSTEM}: the package ${PLATFORM_PACKAGE} is not installed ` +
    "(npm omits it with --omit=optional)"
  );
}

/** The path of the carried program, undefined if its package is not installed. */
function carriedProgram() {
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

module.exports = { carriedProgram, findProgram, missingProgram };
