// The code in the package's README runs as it stands there.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";

import { FRAMEWORKS, inside, run } from "./frameworks.js";

const README = readFileSync(inside("node_modules/lockwheel/README.md"), "utf8");
const BLOCKS = [...README.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code);

/** What runs a block: what it takes its hooks from. */
function runner(code) {
  if (code.includes('from "vitest"')) return "vitest";
  if (code.includes('from "node:test"')) return "node-test";
  return code.includes("test(") ? "jest" : "node";
}

/** Writes the blocks that this runs into files of a folder: the folder, and the blocks. */
function write(name, extension) {
  const folder = `projects/${name}/readme`;
  mkdirSync(inside(folder), { recursive: true });
  const blocks = BLOCKS.filter((code) => runner(code) === name);
  assert.notEqual(blocks.length, 0);
  const file = (index) => inside(`${folder}/block-${index}.test.${extension}`);
  blocks.forEach((code, index) => writeFileSync(file(index), code));
  return { folder, blocks };
}

for (const [name, command] of Object.entries(FRAMEWORKS)) {
  test(`its code for ${name}`, async () => {
    const { folder, blocks } = write(name, name === "jest" ? "cjs" : "js");
    const titles = blocks.flatMap((code) => [...code.matchAll(/^test\("([^"]*)"/gm)]);
    const { passed, text } = await run(folder, command);
    assert.ok(passed, text);
    for (const [, title] of titles) assert.ok(text.includes(title), `${title}\n${text}`);
  });
}

test("its code without a framework", async () => {
  const { folder, blocks } = write("node", "js");
  for (const index of blocks.keys()) {
    const { passed, text } = await run(folder, [process.execPath, `block-${index}.test.js`]);
    assert.ok(passed, text);
  }
});
