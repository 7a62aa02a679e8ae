// Under all timers that Vitest fakes by default.

import { afterEach, beforeEach, test, vi } from "vitest";
import { fakeTimers } from "../../cases.cjs";

fakeTimers({
  test,
  beforeEach,
  afterEach,
  fake: () => vi.useFakeTimers(),
  real: () => vi.useRealTimers(),
  answers: { connectingIoredis: true, nodeRedis: false },
});
