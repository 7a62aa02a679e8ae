// Under all that Jest fakes unless told.

require("../../cases.cjs").fakeTimers({
  test,
  beforeEach,
  afterEach,
  fake: () => jest.useFakeTimers(),
  real: () => jest.useRealTimers(),
  answers: { connectingIoredis: false, nodeRedis: false },
});
