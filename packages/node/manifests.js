// manifests.js FOLDER VERSION: writes what the two packages say of themselves, for this system.

"use strict";

const { readFileSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const [folder, version] = process.argv.slice(2);

// There is a package with the program for each of them.
const SYSTEMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];

const { platform, arch } = process;

const main = JSON.parse(readFileSync(join(__dirname, "package.json"), "utf8"));
const packages = SYSTEMS.map((system) => [`@lockwheel/${system}`, version]);
write("lockwheel", { ...main, version, optionalDependencies: Object.fromEntries(packages) });

write("platform", {
  name: `@lockwheel/${platform}-${arch}`,
  version,
  description: `The server of lockwheel for ${platform} on ${arch}`,
  license: main.license,
  os: [platform],
  cpu: [arch],
  files: ["bin", "LICENSE-*"],
  // It is run, so it must not stay within an archive.
  preferUnplugged: true,
});

function write(name, manifest) {
  writeFileSync(join(folder, name, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}
