//! The recorded figures: `benches/instructions.txt`, and how far a figure may be above them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The figure of one binary is the same every time. This is for what changes it though nobody has
/// touched the path: a neighbour that is inlined or not, a dependency's patch, another libc.
const ROOM: f64 = 0.02;
/// Another compiler may do better here and worse there; what it may not hide is a new allocation
/// or a second look-up.
const ROOM_FOR_ANOTHER_TOOLCHAIN: f64 = 0.10;

const HEAD: &str = "\
# User-space instructions of one operation at the engine, by callgrind, release profile. Written by
# `cargo run --release -p lockwheel-benches --bin instructions -- --record`; CI runs `--check`.
# Another toolchain is given more room; who changes it records anew, in a commit of its own.
";

/// What has made the binary that is measured.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Toolchain {
    /// In the words of `rustc --version`.
    rustc: String,
    /// In the words of `cc --version`: it compiles Lua.
    cc: String,
}

impl Toolchain {
    /// The one that cargo would use.
    pub(crate) fn here() -> Toolchain {
        Toolchain { rustc: version("rustc"), cc: version("cc") }
    }
}

fn version(compiler: &str) -> String {
    let output = Command::new(compiler).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

/// See the module's documentation.
pub(crate) struct Record {
    toolchain: Toolchain,
    figures: BTreeMap<String, u64>,
}

impl Record {
    /// What is recorded.
    pub(crate) fn read() -> Result<Record, String> {
        let text = fs::read_to_string(path()).map_err(|error| format!("{:?}: {error}", path()))?;
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let mut record = Record {
            toolchain: Toolchain { rustc: String::new(), cc: String::new() },
            figures: BTreeMap::new(),
        };
        for line in lines {
            let (name, value) = line.rsplit_once(": ").ok_or(format!("{line:?} is no figure"))?;
            match name {
                "rustc" => value.clone_into(&mut record.toolchain.rustc),
                "cc" => value.clone_into(&mut record.toolchain.cc),
                _ => {
                    let value = value.parse().map_err(|error| format!("{line:?}: {error}"))?;
                    record.figures.insert(name.to_owned(), value);
                }
            }
        }
        Ok(record)
    }

    /// Replaces what is recorded.
    pub(crate) fn write(&self, toolchain: &Toolchain) -> Result<(), String> {
        let mut text = format!("{HEAD}rustc: {}\ncc: {}\n", toolchain.rustc, toolchain.cc);
        for (name, figure) in &self.figures {
            let _ = writeln!(text, "{name}: {figure}");
        }
        fs::write(path(), text).map_err(|error| format!("{:?}: {error}", path()))
    }

    /// By which part of the recorded figures what another toolchain has made may exceed them.
    pub(crate) fn room(&self, toolchain: &Toolchain) -> f64 {
        if self.toolchain == *toolchain { ROOM } else { ROOM_FOR_ANOTHER_TOOLCHAIN }
    }

    /// An operation's recorded figure.
    pub(crate) fn get(&self, operation: &str) -> Option<u64> {
        self.figures.get(operation).copied()
    }

    /// Changes an operation's figure.
    pub(crate) fn set(&mut self, operation: &str, figure: u64) {
        self.figures.insert(operation.to_owned(), figure);
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}
