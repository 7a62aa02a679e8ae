//! The recorded counts in `benches/instructions.txt`, and how far a count may exceed them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The counts of one binary do not vary. This allows for changes outside the measured code: a
/// different inlining decision, a patch of a dependency, another libc.
const TOLERANCE: f64 = 0.02;
/// Another compiler may generate better or worse code; the tolerance is small enough to show a new
/// allocation or a second look-up.
const TOLERANCE_FOR_ANOTHER_TOOLCHAIN: f64 = 0.10;

const HEAD: &str = "\
# User-space instructions of one operation at the engine, by callgrind, release profile. Written by
# `cargo run --release -p lockwheel-benches --bin instructions -- --record`; CI runs `--check`.
# Another toolchain gets a larger tolerance; record again after changing it, in a separate commit.
";

/// The compilers that built the measured binary.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Toolchain {
    /// The output of `rustc --version`.
    rustc: String,
    /// The output of `cc --version`, which compiles Lua.
    cc: String,
}

impl Toolchain {
    /// The compilers that cargo would use.
    pub(crate) fn installed() -> Toolchain {
        Toolchain { rustc: version("rustc"), cc: version("cc") }
    }
}

fn version(compiler: &str) -> String {
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// The contents of `benches/instructions.txt`.
pub(crate) struct RecordedCounts {
    toolchain: Toolchain,
    counts: BTreeMap<String, u64>,
}

impl RecordedCounts {
    /// Reads the recorded counts.
    pub(crate) fn read() -> Result<RecordedCounts, String> {
        let text = fs::read_to_string(path()).map_err(|error| format!("{:?}: {error}", path()))?;
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut recorded = RecordedCounts {
            toolchain: Toolchain { rustc: String::new(), cc: String::new() },
            counts: BTreeMap::new(),
        };
        for line in lines {
            let (name, value) = line.rsplit_once(": ").ok_or(format!("{line:?} is not a count"))?;
            match name {
                "rustc" => value.clone_into(&mut recorded.toolchain.rustc),
                "cc" => value.clone_into(&mut recorded.toolchain.cc),
                _ => {
                    let value = value.parse().map_err(|error| format!("{line:?}: {error}"))?;
                    recorded.counts.insert(name.to_owned(), value);
                }
            }
        }
        Ok(recorded)
    }

    /// Replaces the recorded counts.
    pub(crate) fn write(&self, toolchain: &Toolchain) -> Result<(), String> {
        let mut text = format!("{HEAD}rustc: {}\ncc: {}\n", toolchain.rustc, toolchain.cc);
        for (name, count) in &self.counts {
            let _ = writeln!(text, "{name}: {count}");
        }
        fs::write(path(), text).map_err(|error| format!("{:?}: {error}", path()))
    }

    /// By which part of a recorded count a binary of this toolchain may exceed it.
    pub(crate) fn tolerance(&self, toolchain: &Toolchain) -> f64 {
        if self.toolchain == *toolchain { TOLERANCE } else { TOLERANCE_FOR_ANOTHER_TOOLCHAIN }
    }

    /// Returns the recorded count of an operation.
    pub(crate) fn get(&self, operation: &str) -> Option<u64> {
        self.counts.get(operation).copied()
    }

    /// Changes the count of an operation.
    pub(crate) fn set(&mut self, operation: &str, count: u64) {
        self.counts.insert(operation.to_owned(), count);
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}
