// The command `lockwheel`, which npm installs and which runs the carried program.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { promisify } from "node:util";

import { start } from "lockwheel";

import { inside } from "./frameworks.js";

const INSTALLED = inside("node_modules/.bin/lockwheel");
const execute = promisify(execFile);

// The process becomes the program where Node can do that; otherwise it starts a child.
const COMMANDS = {
  "the command": [INSTALLED],
  "the command without execve": [
    process.execPath, "--import", "data:text/javascript,delete process.execve", INSTALLED,
  ],
};

for (const [name, [program, ...words]] of Object.entries(COMMANDS)) {
  test(`${name} runs the program`, async () => {
    const { stdout } = await execute(program, [...words, "--version"]);
    assert.match(stdout, / lockwheel=\d/);
  });

  test(`${name} passes the exit status`, async () => {
    const script = "echo $REDIS_URL; exit 7";
    const failed = execute(program, [...words, "run", "--", "sh", "-c", script]);
    await assert.rejects(failed, ({ code, stdout }) => {
      return code === 7 && stdout.startsWith("redis://127.0.0.1:");
    });
  });

  test(`${name} passes signals`, async () => {
    const args = [...words, "run", "--", "sh", "-c", "echo ready; read line; sleep 600"];
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    await once(child.stdout, "data");
    child.kill("SIGTERM");
    const [status, signal] = await once(child, "exit");
    assert.ok(signal === "SIGTERM" || status === 143, `${status} ${signal}`);
  });

  test(`${name} checks a server`, async (t) => {
    const server = await start();
    t.after(() => server.stop());
    await execute(program, [...words, "compat", server.url, "--only", "SET NX refuses"]);
  });
}
