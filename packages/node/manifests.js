// manifests.js FOLDER VERSION: writes the manifests of the two packages for this platform.

"use strict";

const { readFileSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");

const [folder, version] = process.argv.slice(2);

const { platform, arch } = process;

const main = JSON.parse(readFileSync(join(__dirname, "package.json"), "utf8"));
const carrier = `@lockwheel/${platform}-${arch}`;
// Only this platform's package is built. npm would look for others in its registry.
write("lockwheel", { ...main, version, optionalDependencies: { [carrier]: version } });

write("platform", {
  name: carrier,
  version,
  description: `The program of lockwheel for ${platform} on ${arch}`,
  license: main.license,
  os: [platform],
  cpu: [arch],
  files: ["bin", "LICENSE-*"],
  // Yarn must unpack it, since a program in an archive cannot be run.
  preferUnplugged: true,
});

function write(name, manifest) {
  writeFileSync(join(folder, name, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}
