// One server for the tests of a file.

require("../../cases.cjs").shared({ test, before: beforeAll, after: afterAll, beforeEach });
