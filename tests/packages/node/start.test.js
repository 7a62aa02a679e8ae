// A server is started, found at its address, told things by its control connection, and ended.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import Redis from "ioredis";
import { start } from "leasehold";

test("a fresh project has it by an install without network and scripts", () => {
  const project = mkdtempSync(join(tmpdir(), "leasehold-fresh-"));
  const run = (program, args) => execFileSync(program, args, { cwd: project, encoding: "utf8" });
  try {
    writeFileSync(join(project, "package.json"), "{}");
    writeFileSync(
      join(project, "lock.js"),
      `require("leasehold").start()
        .then((server) => server.call("SET", "lock", "token", "NX", "PX", 30_000))
        .then(console.log);`,
    );
    const { ARTEFACTS } = process.env;
    const tarballs = readdirSync(ARTEFACTS).map((name) => join(ARTEFACTS, name));
    run("npm", ["install", "--offline", "--ignore-scripts", "--loglevel=error", ...tarballs]);
    assert.equal(run("node", ["lock.js"]), "OK\n");
  } finally {
    rmSync(project, { recursive: true });
  }
});

test("a client finds the server at its URL, and at its host and port", async () => {
  const server = await start();
  assert.equal(server.url, `redis://${server.host}:${server.port}`);
  for (const redis of [new Redis(server.url), new Redis(server.port, server.host)]) {
    assert.equal(await redis.ping(), "PONG");
    redis.disconnect();
  }
  await server.stop();
});
