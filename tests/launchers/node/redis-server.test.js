// redis-server: its options are one element each, as in "--port 6379".

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import RedisServer from "redis-server";

import { PROGRAM, freePort, gone, launcher, use } from "./server.js";

launcher("redis-server", (behaviour) => {
  behaviour("starts on the port asked for, and serves", async () => {
    const port = await freePort();
    const server = new RedisServer({ port, bin: PROGRAM });
    await server.open();
    assert.equal(await use(port), server.process.pid);
    await server.close();
  });

  behaviour("is found on PATH, and takes a file", async () => {
    const [port, folder] = [await freePort(), mkdtempSync(join(tmpdir(), "launchers-"))];
    const conf = join(folder, "redis.conf");
    writeFileSync(conf, `port ${port}\nsave ""\nrequirepass secret\n`);
    const server = new RedisServer({ conf });
    await server.open();
    assert.equal(await use(port, { password: "secret" }), server.process.pid);
    await server.close();
    rmSync(folder, { recursive: true });
  });

  behaviour("refuses a port that is taken", async () => {
    const port = await freePort();
    const [server, second] = [1, 2].map(() => new RedisServer({ port, bin: PROGRAM }));
    await server.open();
    await assert.rejects(second.open(), { message: "Address already in use", code: -1 });
    await server.close();
  });

  behaviour("ends with status 0, and leaves no process", async () => {
    const server = new RedisServer({ port: await freePort(), bin: PROGRAM });
    await server.open();
    const { process } = server;
    const ended = once(process, "exit");
    await server.close();
    assert.deepEqual(await ended, [0, null]);
    await gone(process.pid);
  });

  behaviour("is stopped and started again on the same port", async () => {
    const port = await freePort();
    const server = new RedisServer({ port, bin: PROGRAM });
    for (let time = 0; time < 3; time += 1) {
      await server.open();
      await use(port);
      await server.close();
    }
  });
});
