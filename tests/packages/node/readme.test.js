// Runs all code and commands of the package's README.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FRAMEWORKS, inside, run } from "./frameworks.js";

const README = readFileSync(inside("node_modules/lockwheel/README.md"), "utf8");
const BLOCKS = blocks("js");

/** Its story as a pattern: the numbers of the entries depend on when clients connect. */
const STORY = RegExp(
  blocks("text")[0].trimEnd().replace(/[^\w\s]/g, "\\$&").replace(/#\d+/g, "#\\d+"),
);

function blocks(language) {
  const pattern = new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\`$`, "gm");
  return [...README.matchAll(pattern)].map(([, code]) => code);
}

/** The framework that runs a block, from its imports. */
function runner(code) {
  if (code.includes('from "vitest"')) return "vitest";
  if (code.includes('from "node:test"')) return "node-test";
  return code.includes("test(") ? "jest" : "node";
}

/** Writes the blocks of one framework into files of a folder. Returns the folder and the blocks. */
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

test("its story is that of the test before it", async () => {
  const folder = "projects/jest/story";
  mkdirSync(inside(folder));
  const [, code] = README.split("## Gates")[1].match(/^```js\n([^]*?)^```$/m);
  const replace = (text, part, by) => {
    assert.ok(text.includes(part), part);
    return text.replace(part, () => by);
  };
  // A story shows connections that are opened while it goes on: here they are opened before it.
  const clients = "[new Redis(server.url), new Redis(server.url)];";
  const inOrder = replace(code, clients, "[await connect(), await connect()];");
  const connect = `async function connect() {
    const redis = new Redis(server.url);
    await redis.ping();
    return redis;
  }`;
  const test = replace(inOrder, `toThrow("'lock'")`, `toThrow(${STORY})`);
  writeFileSync(inside(`${folder}/story.test.cjs`), `${test}\n${connect}\n`);
  const { passed, text } = await run(folder, FRAMEWORKS.jest);
  assert.ok(passed, text);
});

test("its code without a framework", async () => {
  const { folder, blocks } = write("node", "js");
  for (const index of blocks.keys()) {
    const { passed, text } = await run(folder, [process.execPath, `block-${index}.test.js`]);
    assert.ok(passed, text);
  }
});

test("its commands install the packages into an empty project", () => {
  const [build, ...commands] = blocks("sh");
  assert.equal(build, 'OUT=/tmp/lockwheel\npackages/build "$OUT" node\n');
  const above = mkdtempSync(join(tmpdir(), "lockwheel-readme-"));
  try {
    // The project's other dependencies are above it.
    symlinkSync(inside("../node_modules"), join(above, "node_modules"));
    const folder = join(above, "project");
    mkdirSync(folder);
    writeFileSync(join(folder, "package.json"), '{ "scripts": { "test": "vitest run" } }');
    writeFileSync(join(folder, "invoice.test.js"), BLOCKS[0]);
    const { NODE_TEST_CONTEXT: _, ...others } = process.env;
    const programs = join(above, "node_modules", ".bin");
    const env = { ...others, PATH: `${programs}:${process.env.PATH}`, npm_config_offline: "true" };
    for (const command of commands) {
      execFileSync("sh", ["-e", "-c", command], { cwd: folder, env, stdio: "pipe" });
    }
  } finally {
    rmSync(above, { recursive: true });
  }
});
