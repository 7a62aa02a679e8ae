// The choice of the program, its end with the test process, and an install from the tarballs.

import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const { ARTEFACTS } = process.env;
const HERE = dirname(fileURLToPath(import.meta.url));
const SYSTEM = `${process.platform}-${process.arch}`;
const CARRIED = dirname(
  createRequire(import.meta.url).resolve(`@lockwheel/${SYSTEM}/package.json`),
);

/** A project with the tarballs of these name prefixes, removed after the test. */
function project(t, ...names) {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-project-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "package.json"), "{}");
  const wanted = readdirSync(ARTEFACTS).filter((file) => names.some((it) => file.startsWith(it)));
  const tarballs = wanted.map((file) => join(ARTEFACTS, file));
  const quiet = ["--loglevel=error", "--no-fund", "--no-audit"];
  const options = { cwd: folder, encoding: "utf8" };
  execFileSync("npm", ["install", "--offline", "--ignore-scripts", ...quiet, ...tarballs], options);
  return folder;
}

const CALL = `
require("lockwheel").start()
  .then((server) => server.call("LOCKWHEEL", "CLOCK"))
  .then(() => console.log("started"), (error) => console.log(error.message));
`;

/** Runs a script in the folder, with only its programs on PATH. Returns the output. */
async function run(folder, script, variables) {
  const env = { PATH: join(folder, "programs"), ...variables };
  const options = { cwd: folder, env };
  return (await promisify(execFile)(process.execPath, ["-e", script], options)).stdout.trim();
}

test("an offline install without scripts works, and a server keeps no process running", async (t) => {
  assert.equal(await run(project(t, "lockwheel-"), CALL), "started");
});

test("a missing program is an error with advice", async (t) => {
  const folder = project(t, "lockwheel-0", "lockwheel-1");
  const message = await run(folder, CALL);
  assert.match(message, new RegExp(`no lockwheel for ${SYSTEM}: .*@lockwheel/${SYSTEM} is not`));
  assert.match(message, /omit=optional.* on PATH.* LOCKWHEEL_BINARY/);

  mkdirSync(join(folder, "programs"));
  const program = join(folder, "programs", "lockwheel");
  writeFileSync(program, `#!/bin/sh\nexec "${join(CARRIED, "bin", "lockwheel")}" "$@"\n`);
  assert.match(await run(folder, CALL), /no lockwheel for/, "the file is not executable");
  chmodSync(program, 0o755);
  assert.equal(await run(folder, CALL), "started");
});

test("LOCKWHEEL_BINARY has priority over the carried program", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "lockwheel-chosen-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const chosen = join(folder, "chosen");
  const missing = await run(HERE, CALL, { LOCKWHEEL_BINARY: chosen });
  assert.equal(missing, `LOCKWHEEL_BINARY is ${chosen}, which is not an executable file`);
  writeFileSync(chosen, "#!/bin/sh\necho chosen; exit 7\n", { mode: 0o755 });
  const started = await run(HERE, CALL, { LOCKWHEEL_BINARY: chosen });
  assert.equal(started, "the server ended with 7\nchosen");
});

const PRINT_PORTS = `
import { start } from "lockwheel";
const servers = [await start(), await start({ options: ["--requirepass", "secret"] })];
console.log(JSON.stringify(servers.map(({ port }) => port)));
setInterval(() => {}, 1_000);
`;

function closed(connection) {
  connection.on("error", () => {});
  return new Promise((resolve) => connection.once("close", resolve));
}

for (const signal of ["SIGKILL", "SIGTERM", "SIGINT"]) {
  test(`servers end with a test process that is ended by ${signal}`, async (t) => {
    const args = ["--input-type=module", "-e", PRINT_PORTS];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => child.kill("SIGKILL"));
    const ports = JSON.parse(String((await once(child.stdout, "data"))[0]));
    const connections = ports.map((port) => connect(port, "127.0.0.1").resume());
    await Promise.all(connections.map((connection) => once(connection, "connect")));
    child.kill(signal);
    // A server that ends closes its connections or resets them.
    await Promise.all(connections.map(closed));
    for (const port of ports) {
      await assert.rejects(once(connect(port, "127.0.0.1"), "connect"), { code: "ECONNREFUSED" });
    }
  });
}
