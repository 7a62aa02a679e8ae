// Runs beside the file "two".

import { afterEach, beforeEach, test } from "node:test";
import { together } from "../../cases.cjs";

together("one", "two", { test, beforeEach, afterEach });
