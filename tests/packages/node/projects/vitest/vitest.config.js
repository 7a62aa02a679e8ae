// How Vitest runs the tests of a folder beside this file.

export default {
  test: {
    maxWorkers: 2,
    testTimeout: 60_000,
    // Its own way to report a failure takes a newer Node than all the rest of it.
    reporters: ["tap"],
  },
};
