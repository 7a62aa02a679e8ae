// Under all timers that Jest fakes by default.

require("../../cases.cjs").fakeTimers({
  test,
  beforeEach,
  afterEach,
  fake: () => jest.useFakeTimers(),
  real: () => jest.useRealTimers(),
  answers: { connectingIoredis: false, nodeRedis: false },
});
