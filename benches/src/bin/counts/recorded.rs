//! The recorded counts in `benches/counts.txt`, and how far a count may exceed them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fraction by which instructions may exceed those recorded. The counts of one binary hardly vary;
/// this allows for changes outside the measured code: a different inlining decision, a patch of a
/// dependency, another libc.
const TOLERANCE: f64 = 0.02;
/// The same fraction for another compiler, which may generate better or worse code; small enough to
/// show a new allocation or a second look-up.
const TOLERANCE_FOR_ANOTHER_TOOLCHAIN: f64 = 0.10;

const HEAD: &str = "\
# What one operation costs, by callgrind, release profile: at the engine, in user-space
# instructions; through a connection of the server, from the readiness of its socket to its next
# wait, in clock reads, user-space instructions and system calls, when the client waits for each
# reply, and when it sends 16 requests together. Written by
# `cargo run --release -p lockwheel-benches --bin counts -- --record`; CI runs `--check`. With
# another toolchain, instructions get a larger tolerance; record again after changing it, in a
# separate commit.
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

/// The cost of one operation.
pub(crate) struct Count {
    /// The operation, and what is counted unless it is instructions at the engine.
    pub(crate) name: String,
    pub(crate) value: f64,
    /// Whether it must equal the recorded one.
    pub(crate) is_exact: bool,
}

/// The contents of `benches/counts.txt`.
pub(crate) struct RecordedCounts {
    toolchain: Toolchain,
    counts: BTreeMap<String, f64>,
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

    /// Returns how a count differs from the recorded one, if it may not.
    pub(crate) fn difference(&self, count: &Count, toolchain: &Toolchain) -> Option<String> {
        let Count { name, value, is_exact } = count;
        let Some(recorded) = self.get(name) else {
            return Some(format!("{name}: {value}, not recorded"));
        };
        let tolerance = match self.toolchain == *toolchain {
            true => TOLERANCE,
            false => TOLERANCE_FOR_ANOTHER_TOOLCHAIN,
        };
        if *is_exact {
            (*value != recorded).then(|| format!("{name}: {value}, recorded {recorded}"))
        } else {
            (*value > recorded * (1.0 + tolerance)).then(|| {
                let percent = tolerance * 100.0;
                format!("{name}: {value}, more than {percent:.0} % above the recorded {recorded}")
            })
        }
    }

    /// Returns the recorded count of this name.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.counts.get(name).copied()
    }

    /// Sets a count.
    pub(crate) fn set(&mut self, count: Count) {
        self.counts.insert(count.name, count.value);
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_counts_may_not_differ_and_others_may_not_grow() {
        let toolchain = Toolchain { rustc: "1".to_owned(), cc: "1".to_owned() };
        let counts = BTreeMap::from([("get".to_owned(), 100.0)]);
        let recorded = RecordedCounts { toolchain: toolchain.clone(), counts };
        let differs = |name: &str, value, is_exact, toolchain| {
            let count = Count { name: name.to_owned(), value, is_exact };
            recorded.difference(&count, toolchain).is_some()
        };
        let another = Toolchain { rustc: "2".to_owned(), ..toolchain.clone() };
        for (value, when_exact, otherwise, with_another) in [
            (50.0, true, false, false),
            (100.0, false, false, false),
            (100.0625, true, false, false),
            (103.0, true, true, false),
            (111.0, true, true, true),
        ] {
            assert_eq!(differs("get", value, true, &toolchain), when_exact, "{value}");
            assert_eq!(differs("get", value, true, &another), when_exact, "{value}");
            assert_eq!(differs("get", value, false, &toolchain), otherwise, "{value}");
            assert_eq!(differs("get", value, false, &another), with_another, "{value}");
        }
        assert!(differs("set", 1.0, false, &toolchain), "it is not recorded");
    }
}
