// One server for the tests of a file.

import { after, before, beforeEach, test } from "node:test";
import { shared } from "../../cases.cjs";

shared({ test, before, after, beforeEach });
