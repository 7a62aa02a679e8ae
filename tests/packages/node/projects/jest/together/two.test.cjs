// Runs beside the file "one".

require("../../cases.cjs").together("two", "one", { test, beforeEach, afterEach });
