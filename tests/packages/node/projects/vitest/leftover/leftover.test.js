// Tests that have to fail.

import { afterEach, beforeEach, test } from "vitest";
import { leftover } from "../../cases.cjs";

leftover({ test, beforeEach, afterEach });
