// Runs beside the file "two".

require("../../cases.cjs").together("one", "two", { test, beforeEach, afterEach });
