// One server for the tests of a file.

import { afterAll, beforeAll, beforeEach, test } from "vitest";
import { shared } from "../../cases.cjs";

shared({ test, before: beforeAll, after: afterAll, beforeEach });
