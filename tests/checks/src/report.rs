//! What is printed: the beginning and the end of each step, and the table of times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use nix::sys::statvfs::statvfs;

use crate::job::{Ended, Job, Outcome};
use crate::steps::{Level, Step};
use crate::{root, target};

/// Lines that are shown of the output of a step that fails.
const LINES_SHOWN: usize = 60;

/// Largest excess over the recorded time, in percent, of a step that is not marked.
const TOLERANCE_PERCENT: u64 = 20;

/// Seconds of the longest difference that is not marked.
const TOLERANCE_SECONDS: u64 = 5;

/// Free space below which a failure is probably one of the disk.
const LITTLE_SPACE_MIB: u64 = 100;

/// The recorded times of steps, in seconds.
pub(crate) struct Times(BTreeMap<String, u64>);

impl Times {
    /// Reads the file.
    pub(crate) fn read() -> Times {
        let text = fs::read_to_string(times_path()).unwrap_or_default();
        let time = |line: &str| {
            let (name, seconds) = line.split_once(' ')?;
            Some((name.to_owned(), seconds.trim().parse().ok()?))
        };
        Times(text.lines().filter(|line| !line.starts_with('#')).filter_map(time).collect())
    }

    /// Writes the times of the steps that have passed to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn record(&mut self, results: &[Ended]) -> Result<(), String> {
        let passed = results.iter().filter(|ended| ended.outcome == Outcome::Passed);
        self.0.extend(passed.map(|ended| (ended.name.clone(), ended.seconds)));
        let lines = self.0.iter().map(|(name, seconds)| format!("{name} {seconds}\n"));
        let text = format!(
            "# Seconds that each step took, on two processors, beside the others of its level.\n\
             # Written by `.ci/run --record`.\n{}",
            lines.collect::<String>()
        );
        let path = times_path();
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The recorded time beside a measured one.
    fn beside(&self, ended: &Ended) -> String {
        let Some(&recorded) = self.0.get(&ended.name) else { return String::new() };
        let more = ended.seconds * 100 > recorded * (100 + TOLERANCE_PERCENT);
        let is_longer = more && ended.seconds > recorded + TOLERANCE_SECONDS;
        format!("recorded: {recorded} s{}", if is_longer { ", LONGER" } else { "" })
    }
}

fn times_path() -> PathBuf {
    root().join("tests/checks/times.txt")
}

/// Prints the rows of the steps, as far as they are read.
pub(crate) fn list(steps: &[&Step]) {
    let rows: String = steps.iter().map(|step| row(step)).collect();
    let _ = std::io::stdout().write_all(rows.as_bytes());
}

fn row(step: &Step) -> String {
    let level = if step.level == Level::Gate { "gate" } else { "full" };
    let load = format!("{:?}", step.load).to_lowercase();
    let mut lines = vec![
        format!("{} ({level}, at most {} s, {load})", step.name, step.limit_seconds),
        format!("    needs: {}", step.needs.join(", ")),
        format!("    paths: {}", step.paths.join(" ")),
    ];
    for (name, steps) in [("after", &step.after), ("includes", &step.includes)] {
        if !steps.is_empty() {
            lines.push(format!("    {name}: {}", steps.join(" ")));
        }
    }
    lines.extend(step.command.lines().map(|line| format!("    $ {}", line.trim())));
    lines.join("\n") + "\n"
}

/// Prints that a step begins.
pub(crate) fn begins(job: &Job) {
    println!("{}: begins ({} MiB free)", job.name, free_mib());
}

/// Prints how a step ended.
pub(crate) fn ended(ended: &Ended, times: &Times) {
    let seconds = ended.seconds;
    match &ended.outcome {
        Outcome::Passed => println!("{}: passed, {seconds} s  {}", ended.name, times.beside(ended)),
        Outcome::LeftOut(reason) => println!("{}: LEFT OUT: {reason}", ended.name),
        Outcome::Failed(reason) => {
            println!("\n=== {}: FAILED after {seconds} s: {reason}", ended.name);
            explain(&ended.name);
        }
    }
}

/// Prints the end of the output of a step that has failed, and the command that repeats it.
fn explain(name: &str) {
    let path = Job::log(name);
    let output = fs::read(&path).unwrap_or_default();
    let output = String::from_utf8_lossy(&output);
    let lines: Vec<&str> = output.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    println!("--- the last {} of {} lines of {}", shown.len(), lines.len(), path.display());
    shown.iter().for_each(|line| println!("{line}"));
    println!("---");
    for test in unfinished_tests(&output) {
        println!("the test {test} had not ended");
    }
    let free = free_mib();
    if free < LITTLE_SPACE_MIB || output.contains("No space left on device") {
        println!("the disk is full: {free} MiB are free");
    }
    println!("repeat it: .ci/run {name}\n");
}

/// The tests that Rust's test runner has reported as running for long and not as ended.
fn unfinished_tests(output: &str) -> BTreeSet<&str> {
    let mut running = BTreeSet::new();
    for line in output.lines() {
        let Some(rest) = line.strip_prefix("test ") else { continue };
        if let Some((name, _)) = rest.split_once(" has been running for over") {
            running.insert(name);
        } else if let Some((name, _)) = rest.split_once(" ... ") {
            running.remove(name);
        }
    }
    running
}

/// Prints the table of times and the counts; whether no step has failed.
pub(crate) fn summary(results: &[Ended], times: &Times) -> bool {
    println!("\n{:>6}  {:<30}", "time", "step");
    for ended in results {
        let note = match &ended.outcome {
            Outcome::Passed => times.beside(ended),
            Outcome::Failed(reason) => format!("FAILED: {reason}"),
            Outcome::LeftOut(reason) => format!("LEFT OUT: {reason}"),
        };
        println!("{:>4} s  {:<30} {note}", ended.seconds, ended.name);
    }
    let count = |is: fn(&Outcome) -> bool| results.iter().filter(|it| is(&it.outcome)).count();
    let passed = count(|it| matches!(it, Outcome::Passed));
    let failed = count(|it| matches!(it, Outcome::Failed(_)));
    let left_out = count(|it| matches!(it, Outcome::LeftOut(_)));
    println!("\n{passed} passed, {failed} failed, {left_out} skipped");
    failed == 0
}

/// The free space of the disk of Cargo's folder.
fn free_mib() -> u64 {
    let folder = target();
    let folder = if folder.exists() { folder } else { root() };
    statvfs(&folder).map_or(0, |disk| (disk.blocks_available() * disk.fragment_size()) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_have_not_ended_are_named() {
        let output = "test a ... ok\ntest b has been running for over 60 seconds\n\
                      test c has been running for over 60 seconds\ntest b ... ok\n";
        assert_eq!(unfinished_tests(output), BTreeSet::from(["c"]));
    }

    #[test]
    fn longer_times_than_recorded_are_marked() {
        let times = Times(BTreeMap::from([("a".to_owned(), 100)]));
        let beside = |seconds| {
            times.beside(&Ended { name: "a".to_owned(), outcome: Outcome::Passed, seconds })
        };
        assert_eq!(beside(120), "recorded: 100 s");
        assert_eq!(beside(121), "recorded: 100 s, LONGER");
    }
}
