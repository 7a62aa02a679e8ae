// Under all timers that node:test fakes by default.

import { afterEach, beforeEach, mock, test } from "node:test";
import { fakeTimers } from "../../cases.cjs";

fakeTimers({
  test,
  beforeEach,
  afterEach,
  fake: () => mock.timers.enable(),
  real: () => mock.timers.reset(),
  answers: { connectingIoredis: true, nodeRedis: false },
});
