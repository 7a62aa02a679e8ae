// BullMQ through node-redis, which it takes for the whole process: hence a file of its own.

import assert from "node:assert/strict";
import { Queue, RedisConnection, Worker, createNodeRedisClient } from "bullmq";
import { createClient } from "redis";

import { library, uniqueName } from "./behaviours.js";
import { eventually, sleep } from "./contention.js";
import { MAIN, address } from "./servers.js";

const connection = address(MAIN);

RedisConnection.clientFactory = () => createNodeRedisClient(createClient({ url: MAIN }));

library("BullMQ", "bullmq", (behaviour) => {
  behaviour(
    "through node-redis: every job is done exactly once, delayed ones in time",
    async (t) => {
      const [name, done, early] = [uniqueName(), [], []];
      const queue = new Queue(name, { connection });
      const work = async (job) => {
        done.push(job.data);
        if (Date.now() < job.timestamp + job.opts.delay) early.push(job.data);
        await sleep(1);
      };
      const workers = [1, 2, 3].map(() => new Worker(name, work, { connection, concurrency: 4 }));
      for (const each of [queue, ...workers]) {
        each.on("error", () => {});
        t.after(() => each.close());
      }
      const jobs = Array.from({ length: 60 }, (_, data) => {
        return { name: "job", data, opts: { delay: (data % 3) * 200 } };
      });
      await queue.addBulk(jobs);
      await eventually(async () => (await queue.getCompletedCount()) === jobs.length);
      assert.deepEqual(
        done.sort((a, b) => a - b),
        jobs.map((job) => job.data),
      );
      assert.deepEqual(early, []);
    },
  );
});
