// How Jest runs the tests of a folder beside this file.

module.exports = {
  // Within the temporary project, so that it goes with it.
  cacheDirectory: "<rootDir>/../cache",
  maxWorkers: 2,
  testTimeout: 60_000,
  verbose: true,
  // Otherwise Jest chooses the number of processes.
  workerIdleMemoryLimit: "1GB",
};
