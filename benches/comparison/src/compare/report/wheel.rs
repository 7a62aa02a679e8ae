//! The costs of a timer: read from criterion's output of the bench `wheel`, saved in
//! `benches/results/wheel.json`, and shown as a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use lockwheel_comparison::{Outcome, git_commit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const SAVED: &str = include_str!("../../../../results/wheel.json");
/// The number of live timers.
const TIMERS: u32 = 1_000_000;
/// The operations: their names in the bench, what they do, and the nanoseconds they may take.
const OPERATIONS: &[(&str, &str, Option<f64>)] = &[
    ("insert", "insert: a lock is taken", Some(35.0)),
    ("move", "move: any lock is renewed", Some(150.0)),
    ("cancel", "cancel: any lock is released", Some(20.0)),
    ("release", "cancel: a lock is released that was taken just now", Some(20.0)),
    ("expire", "expire: a lease ends", None),
];
const IMPLEMENTATIONS: &[(&str, &str)] =
    &[("Wheel", "Wheel"), ("DelayQueue", "tokio's `DelayQueue`"), ("BinaryHeap", "`BinaryHeap`")];

/// Nanoseconds by operation and implementation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WheelCosts {
    commit: String,
    source: String,
    timers: u32,
    nanoseconds: BTreeMap<String, BTreeMap<String, f64>>,
}

impl WheelCosts {
    /// Reads the medians from the folder into which criterion writes.
    pub(crate) fn read(folder: &Path) -> Outcome<WheelCosts> {
        let mut nanoseconds: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for (operation, ..) in OPERATIONS {
            for (implementation, _) in IMPLEMENTATIONS {
                let place = format!("{operation}/{implementation}/{TIMERS}/new/estimates.json");
                let path = folder.join(place);
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                let estimates: Value = serde_json::from_str(&text)?;
                let median = estimates["median"]["point_estimate"].as_f64();
                let median = median.ok_or_else(|| format!("{}: no median", path.display()))?;
                let costs = nanoseconds.entry((*operation).to_owned()).or_default();
                costs.insert((*implementation).to_owned(), median);
            }
        }
        let source = "Medians of criterion, written by `compare wheel`.".to_owned();
        Ok(WheelCosts { commit: git_commit(), source, timers: TIMERS, nanoseconds })
    }

    /// The text of `wheel.json`.
    pub(crate) fn to_json(&self) -> Outcome<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// The saved costs as Markdown.
pub(crate) fn table() -> String {
    let saved: WheelCosts = serde_json::from_str(SAVED).expect("wheel.json is valid");
    let titles: Vec<&str> = IMPLEMENTATIONS.iter().map(|(_, title)| *title).collect();
    let mut out = format!("Commit {}. {}\n\n", saved.commit, saved.source);
    let _ = writeln!(out, "| | at most | {} |", titles.join(" | "));
    let _ = writeln!(out, "|---|---:|{}", "---:|".repeat(titles.len()));
    for (operation, title, most) in OPERATIONS {
        let cost = |name: &str| saved.nanoseconds.get(*operation)?.get(name).copied();
        let cell = |(implementation, _): &(&str, &str)| {
            let Some(cost) = cost(implementation) else { return String::new() };
            let is_missed = *implementation == "Wheel" && most.is_some_and(|most| cost > most);
            format!("{cost:.0}{}", if is_missed { ", missed" } else { "" })
        };
        let cells: Vec<String> = IMPLEMENTATIONS.iter().map(cell).collect();
        let most = most.map_or_else(String::new, |most| format!("{most:.0}"));
        let _ = writeln!(out, "| {title} | {most} | {} |", cells.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use lockwheel_tests::daemon::Folder;

    use super::{IMPLEMENTATIONS, OPERATIONS, TIMERS, WheelCosts, table};

    #[test]
    fn medians_are_read_from_the_output_of_criterion() {
        let folder = Folder::new();
        let root = std::path::PathBuf::from(folder.path("criterion"));
        assert!(WheelCosts::read(&root).is_err());
        for (operation, ..) in OPERATIONS {
            for (implementation, _) in IMPLEMENTATIONS {
                let place = root.join(format!("{operation}/{implementation}/{TIMERS}/new"));
                std::fs::create_dir_all(&place).expect("a folder");
                let text = "{\"median\":{\"point_estimate\":12.5}}";
                std::fs::write(place.join("estimates.json"), text).expect("a file");
            }
        }
        let costs = WheelCosts::read(&root).expect("all medians");
        assert_eq!(costs.nanoseconds["move"]["DelayQueue"], 12.5);
    }

    #[test]
    fn saved_costs_make_a_table() {
        let table = table();
        assert!(table.contains("| cancel: any lock is released | 20 |"), "{table}");
        assert!(table.lines().count() > OPERATIONS.len() + 2);
    }
}
