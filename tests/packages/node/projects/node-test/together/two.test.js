// Runs beside the file "one".

import { afterEach, beforeEach, test } from "node:test";
import { together } from "../../cases.cjs";

together("two", "one", { test, beforeEach, afterEach });
