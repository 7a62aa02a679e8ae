// The exports of lockwheel/locks for import.

import locks from "./locks.js";

export const { Lock, LockError, LockLost, NoNativeLocks, NotAcquired } = locks;
