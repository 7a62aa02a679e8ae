// Tests that have to fail.

require("../../cases.cjs").leftover({ test, beforeEach, afterEach });
