// A test that has to fail.

require("../../cases.cjs").leftover({ test, beforeEach, afterEach });
