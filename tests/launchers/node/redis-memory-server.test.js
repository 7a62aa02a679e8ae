// redis-memory-server: its variables name our program, so that it compiles none.

import assert from "node:assert/strict";
import { once } from "node:events";

import launched from "redis-memory-server";
import instances from "redis-memory-server/lib/util/RedisInstance.js";

import { freePort, gone, launcher, use } from "./server.js";

const RedisMemoryServer = launched.RedisMemoryServer ?? launched.default ?? launched;
const RedisInstance = instances.default ?? instances;

launcher("redis-memory-server", (behaviour) => {
  behaviour("starts on the port asked for, and serves", async () => {
    const port = await freePort();
    const server = await RedisMemoryServer.create({ instance: { port }, autoStart: true });
    assert.equal(await server.getPort(), port);
    assert.equal(await server.getHost(), "127.0.0.1");
    const { instance } = server.getInstanceInfo();
    assert.equal(await use(port), instance.getPid());
    await server.stop();
  });

  behaviour("finds a free port and passes arguments", async () => {
    const instance = { args: ["--requirepass", "secret", "--maxmemory", "64mb"] };
    const server = new RedisMemoryServer({ instance });
    const port = await server.getPort();
    await use(port, { password: "secret" });
    await assert.rejects(use(port), /NOAUTH/);
    await server.stop();
  });

  behaviour("refuses a port that is taken", async () => {
    const port = await freePort();
    const server = await RedisMemoryServer.create({ instance: { port }, autoStart: true });
    // The class above looks for another port itself.
    const second = new RedisInstance({ instance: { port, ip: "127.0.0.1" } });
    await assert.rejects(second.run(), (reason) => reason === `Port ${port} already in use`);
    const process = second.childProcess;
    if (process.exitCode === null) await once(process, "exit");
    assert.equal(process.exitCode, 1);
    await second.kill();
    const other = await RedisMemoryServer.create({ instance: { port }, autoStart: true });
    assert.notEqual(await other.getPort(), port);
    await Promise.all([server.stop(), other.stop()]);
  });

  behaviour("ends with status 0 by SIGINT, and leaves no process", async () => {
    const server = await RedisMemoryServer.create({ autoStart: true });
    const { instance } = server.getInstanceInfo();
    const { childProcess, killerProcess } = instance;
    const ended = once(childProcess, "exit");
    await server.stop();
    assert.deepEqual(await ended, [0, null]);
    await Promise.all([gone(childProcess.pid), gone(killerProcess.pid)]);
  });

  behaviour("is stopped and started again on the same port", async () => {
    const server = await RedisMemoryServer.create({ autoStart: true });
    const port = await server.getPort();
    for (let time = 0; time < 3; time += 1) {
      await server.stop();
      await server.start();
      assert.equal(await server.getPort(), port);
      await use(port);
    }
    await server.stop();
  });
});
