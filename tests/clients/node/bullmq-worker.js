// A BullMQ worker in its own process, so that a test can kill it in the middle of a job.
//
// Arguments: the queue, the duration of a job, the duration of its lock. It sends its parent the id
// of each job that it begins.

import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "bullmq";

import { MAIN, address } from "./servers.js";

const [queue, takesMs, lockDuration] = process.argv.slice(2);

async function work(job) {
  process.send(job.id);
  await sleep(Number(takesMs));
  return process.pid;
}

const options = {
  connection: address(MAIN),
  lockDuration: Number(lockDuration),
  // The worker that checks for stalled jobs blocks this check for all others.
  stalledInterval: 200,
};
const worker = new Worker(queue, work, options);
worker.on("error", () => {});
