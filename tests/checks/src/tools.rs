//! Installs the tools that steps need.

use std::process::{Command, Stdio};

use crate::steps::{Source, Step, Table, Tool};

/// The version in `rust-version` of the root's Cargo.toml, in full.
pub(crate) const OLDEST_RUST: &str = concat!(env!("CARGO_PKG_RUST_VERSION"), ".0");

/// The name of the installation of tools that are compiled.
pub(crate) const COMPILED: &str = "rust-tools";

/// The scripts that install what the steps lack, with their names.
pub(crate) fn installations(table: &Table, steps: &[&Step]) -> Vec<(&'static str, String)> {
    let mut packages = String::new();
    let mut others = String::new();
    for tool in table.tools() {
        let is_needed = steps.iter().any(|step| step.needs.contains(&tool.name));
        match &tool.install {
            _ if !is_needed || is_installed(tool) => {}
            Source::Debian(names) => packages += &format!(" {names}"),
            // The steps that need it name it if that fails.
            _ => others += &format!("{} || true\n", tool.installation()),
        }
    }
    let mut scripts = Vec::new();
    if !packages.is_empty() {
        let script = format!(
            "as_root() {{ if [ \"$(id -u)\" = 0 ]; then \"$@\"; else sudo \"$@\"; fi; }}\n\
             as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq\n\
             as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {packages}"
        );
        scripts.push(("debian-packages", script));
    }
    if !others.is_empty() {
        scripts.push((COMPILED, others));
    }
    scripts
}

/// Whether a tool is installed.
pub(crate) fn is_installed(tool: &Tool) -> bool {
    let mut command = Command::new("bash");
    command.args(["-c", &tool.test]).env("OLDEST_RUST", OLDEST_RUST);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
