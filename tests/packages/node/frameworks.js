// Runs the tests of a folder with each test framework.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

// Much longer than any run takes.
const TIMEOUT_MS = 60_000;

/** The path of a file next to this file. */
export const inside = (path) => fileURLToPath(new URL(path, import.meta.url));

/** The command of a program that is installed above the project. */
export const installed = (name) => [process.execPath, inside(`../node_modules/.bin/${name}`)];

/** The command that runs the tests in the current folder, two files at a time. */
export const FRAMEWORKS = {
  jest: [...installed("jest"), "--config", "../jest.config.cjs", "--rootDir", "."],
  vitest: [...installed("vitest"), "run", "--config", "../vitest.config.js", "--root", "."],
  "node-test": [process.execPath, "--test", "--test-concurrency", "2", "--test-reporter", "tap"],
};

/** Runs a command in a folder. Returns whether it succeeded, and its output. */
export async function run(folder, [program, ...args], variables = {}) {
  const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, NO_COLOR: "1", ...variables };
  const ending = { timeout: TIMEOUT_MS, killSignal: "SIGKILL" };
  const options = { cwd: inside(folder), env, ...ending };
  return promisify(execFile)(program, args, options).then(
    ({ stdout, stderr }) => ({ passed: true, text: stdout + stderr }),
    ({ stdout, stderr }) => ({ passed: false, text: stdout + stderr }),
  );
}
