// Tests that have to fail.

import { afterEach, beforeEach, test } from "node:test";
import { leftover } from "../../cases.cjs";

leftover({ test, beforeEach, afterEach });
