// BullMQ: queues of jobs, which their workers lock.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import Redis, { Cluster } from "ioredis";

import { library, skip, uniqueName } from "./behaviours.js";
import { MAX_WAIT_MS, Section, eventually, sleep } from "./contention.js";
import { CLUSTER, MAIN, address } from "./servers.js";

const connection = address(MAIN);

/** Makes queues, workers and the like, and closes them with the test. */
function closing(t, made) {
  made.on?.("error", () => {});
  t.after(() => made.close(true));
  return made;
}

/** A worker and a list of what it did, as numbers of the data of its jobs. */
function working(t, name, options = {}, work = async () => {}) {
  const done = [];
  const process = async (job, token) => {
    done.push(job.data);
    return work(job, token);
  };
  const worker = closing(t, new Worker(name, process, { connection, ...options }));
  return { worker, done };
}

/** Jobs with the data 0, 1, 2... */
function numbered(count, opts = {}) {
  return Array.from({ length: count }, (_, number) => ({ name: "job", data: number, opts }));
}

/** Waits until so many jobs are completed. */
function completed(queue, count) {
  return eventually(async () => (await queue.getCompletedCount()) === count);
}

/** A client that sees what BullMQ keeps. */
function plain(t) {
  const client = new Redis(MAIN);
  t.after(() => client.disconnect());
  return client;
}

/** A worker process, ended with the test. */
function forked(t, name, takesMs, lockDuration) {
  const file = new URL("bullmq-worker.js", import.meta.url);
  const child = fork(file, [name, String(takesMs), String(lockDuration)]);
  t.after(() => child.kill("SIGKILL"));
  return child;
}

library("BullMQ", "bullmq", (behaviour) => {
  behaviour("several workers: every job is done exactly once", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const pause = () => sleep(1);
    const workers = [1, 2, 3].map(() => working(t, name, { concurrency: 4 }, pause));
    await queue.addBulk(numbered(150));
    await completed(queue, 150);
    const done = workers.flatMap((worker) => worker.done).sort((a, b) => a - b);
    assert.deepEqual(
      done,
      Array.from({ length: 150 }, (_, number) => number),
    );
  });

  behaviour("several worker processes: every job is done exactly once", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const children = [1, 2].map(() => forked(t, name, 5, 30_000));
    const begun = [];
    for (const child of children) child.on("message", (id) => begun.push(id));
    const jobs = await queue.addBulk(numbered(60));
    await completed(queue, 60);
    // The messages of the processes may arrive after the server has completed the jobs.
    await eventually(() => begun.length >= jobs.length);
    assert.deepEqual(begun.sort(), jobs.map((job) => job.id).sort());
  });

  behaviour("one worker: jobs are done in the order in which they were added", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    await queue.addBulk(numbered(30));
    const { done } = working(t, name);
    await completed(queue, 30);
    assert.deepEqual(
      done,
      Array.from({ length: 30 }, (_, number) => number),
    );
  });

  behaviour("a waiting worker is woken by a new job", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const { worker, done } = working(t, name, { drainDelay: 60 });
    await worker.waitUntilReady();
    await sleep(200);
    for (let number = 0; number < 3; number++) {
      await queue.add("job", number);
      await completed(queue, number + 1);
    }
    assert.deepEqual(done, [0, 1, 2]);
  });

  behaviour("global concurrency: of many workers one is inside", async (t) => {
    const [name, section] = [uniqueName(), new Section()];
    const queue = closing(t, new Queue(name, { connection }));
    await queue.setGlobalConcurrency(1);
    for (let number = 0; number < 3; number++) {
      working(t, name, { concurrency: 4 }, () => section.visit());
    }
    await queue.addBulk(numbered(30));
    await completed(queue, 30);
    assert.equal(section.count, 30);
  });

  behaviour("the lock of a job: only its holder renews it and completes the job", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const worker = closing(t, new Worker(name, null, { connection }));
    const other = closing(t, new Worker(name, null, { connection }));
    await queue.add("job", 1);
    const job = await worker.getNextJob("holder");
    assert.equal(await other.getNextJob("other", { block: false }), undefined);
    await assert.rejects(job.moveToCompleted("result", "other", false), /[Ll]ock/);
    assert.equal(await job.extendLock("holder", 30_000), 1);
    await job.moveToCompleted("result", "holder", false);
    assert.equal(await job.getState(), "completed");
  });

  behaviour("a job that takes longer than its lock is not taken from its worker", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    // It is renewed each half of it: a busy machine may stand for three seconds.
    const options = { lockDuration: 6_000, stalledInterval: 300 };
    const workers = [1, 2].map(() => working(t, name, options, () => sleep(7_500)));
    await queue.add("job", 1);
    await completed(queue, 1);
    assert.deepEqual(
      workers.flatMap((worker) => worker.done),
      [1],
    );
  });

  behaviour("the job of a killed worker is done by another after its lock has ended", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const child = forked(t, name, 60_000, 8_000);
    const job = await queue.add("job", 1);
    assert.equal((await once(child, "message"))[0], job.id);
    child.kill("SIGKILL");
    await once(child, "exit");
    const since = performance.now();
    const remaining = await plain(t).pttl(queue.toKey(`${job.id}:lock`));
    assert.ok(remaining > 0);
    let begun;
    const { done } = working(t, name, { stalledInterval: 200 }, () => (begun = performance.now()));
    await completed(queue, 1);
    assert.deepEqual(done, [1]);
    assert.ok(begun - since >= remaining);
  });

  behaviour("a delayed job is done after its delay, not before", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    let begun;
    const { worker } = working(t, name, {}, async () => (begun = Date.now()));
    await worker.waitUntilReady();
    const job = await queue.add("job", 1, { delay: 700 });
    await completed(queue, 1);
    assert.ok(begun - job.timestamp >= 700);
  });

  behaviour("a repeated job is done once in each interval", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const times = [];
    // The name of such a job ends with the time at which it is due.
    const work = async (job) => times.push([Number(job.id.split(":").at(-1)), Date.now()]);
    for (let number = 0; number < 2; number++) working(t, name, {}, work);
    await queue.upsertJobScheduler("every", { every: 300, limit: 4 }, { name: "job" });
    await completed(queue, 4);
    assert.ok(times.every(([due, begun]) => begun >= due));
    // Two workers may receive two jobs at once, in any order.
    const [first, ...rest] = times.map(([due]) => due).sort((a, b) => a - b);
    // A late worker skips intervals, but never runs two jobs for one.
    assert.ok(first < rest[0] && rest[0] < rest[1] && rest[1] < rest[2]);
    assert.ok(rest.every((due) => (due - rest[0]) % 300 === 0));
    await sleep(500);
    assert.equal(times.length, 4);
  });

  behaviour("rate limit: no more jobs begin in an interval than it allows", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    await queue.addBulk(numbered(6));
    // BullMQ takes a PTTL of 0 for the end, so an interval is one of the clock cut to milliseconds.
    const begun = [];
    const [limiter, since] = [{ max: 2, duration: 400 }, Date.now()];
    for (let number = 0; number < 2; number++) {
      working(t, name, { limiter }, async () => begun.push(Date.now()));
    }
    await completed(queue, 6);
    begun.sort((a, b) => a - b);
    assert.ok(begun[2] - since >= 400 && begun[4] - since >= 800);
  });

  behaviour("priorities: the lowest number first, equal ones in their order", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    for (const [number, priority] of [5, 1, 3, 1, 5].entries()) {
      await queue.add("job", number, { priority });
    }
    const { done } = working(t, name);
    await completed(queue, 5);
    assert.deepEqual(done, [1, 3, 2, 0, 4]);
  });

  behaviour("deduplication: of equal jobs at the same time one is added", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const deduplication = { id: "same", ttl: 30_000 };
    const add = (number) => queue.add("job", number, { deduplication });
    const jobs = await Promise.all([0, 1, 2, 3, 4].map(add));
    assert.equal(new Set(jobs.map((job) => job.id)).size, 1);
    assert.equal(await queue.getWaitingCount(), 1);
  });

  behaviour(
    "retries: a failing job is tried again after its backoff, so often and no more",
    async (t) => {
      const name = uniqueName();
      const queue = closing(t, new Queue(name, { connection }));
      // BullMQ computes the time at which a job is due by this clock.
      const begun = [];
      const work = async () => {
        begun.push(Date.now());
        throw new Error("as planned");
      };
      working(t, name, {}, work);
      const backoff = { type: "fixed", delay: 200 };
      const job = await queue.add("job", 1, { attempts: 3, backoff });
      await eventually(() => job.isFailed());
      assert.equal(begun.length, 3);
      assert.ok(begun[1] - begun[0] >= 200 && begun[2] - begun[1] >= 200);
    },
  );

  behaviour("flows: a parent is done after its children, and sees what they gave", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const flow = closing(t, new FlowProducer({ connection }));
    let seen;
    const work = async (job) => {
      if (job.data !== "parent") return job.data;
      seen = Object.values(await job.getChildrenValues()).sort();
    };
    const { done } = working(t, name, { concurrency: 4 }, work);
    const children = [1, 2, 3].map((data) => ({ name: "child", queueName: name, data }));
    await flow.add({ name: "parent", queueName: name, data: "parent", children });
    await completed(queue, 4);
    assert.equal(done.at(-1), "parent");
    assert.deepEqual(seen, [1, 2, 3]);
  });

  behaviour("events: a client that waits for a job receives its end and its result", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    const events = closing(t, new QueueEvents(name, { connection }));
    await events.waitUntilReady();
    working(t, name, {}, async (job) => job.data * 2);
    const job = await queue.add("job", 21);
    assert.equal(await job.waitUntilFinished(events, MAX_WAIT_MS), 42);
  });

  behaviour("pause: nothing is begun until the queue is resumed", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    await queue.pause();
    const { worker, done } = working(t, name);
    await worker.waitUntilReady();
    await queue.addBulk(numbered(3));
    await sleep(300);
    assert.deepEqual(done, []);
    await queue.resume();
    await completed(queue, 3);
    assert.deepEqual(done, [0, 1, 2]);
  });

  behaviour("obliterate: nothing of a queue is left", async (t) => {
    const name = uniqueName();
    const queue = closing(t, new Queue(name, { connection }));
    await queue.addBulk([...numbered(10), ...numbered(10, { delay: 60_000 })]);
    await queue.add("job", 1, { priority: 3 });
    await queue.obliterate({ force: true });
    assert.deepEqual(await plain(t).keys(`bull:${name}:*`), []);
  });

  behaviour("on a cluster: every job is done exactly once", async (t) => {
    if (!CLUSTER) skip("no cluster given");
    const name = uniqueName();
    const connect = () => {
      const cluster = new Cluster([CLUSTER], { redisOptions: { maxRetriesPerRequest: null } });
      t.after(() => cluster.disconnect());
      return cluster;
    };
    const queue = closing(t, new Queue(name, { connection: connect(), prefix: "{bull}" }));
    const options = { connection: connect(), prefix: "{bull}", concurrency: 4 };
    const workers = [
      working(t, name, options),
      working(t, name, { ...options, connection: connect() }),
    ];
    await queue.addBulk(numbered(50));
    await completed(queue, 50);
    const done = workers.flatMap((worker) => worker.done).sort((a, b) => a - b);
    assert.deepEqual(
      done,
      Array.from({ length: 50 }, (_, number) => number),
    );
  });
});
