//! Runs the checks of the project, which are rows of a table: `.ci/run` calls it. CONTRIBUTING.md
//! describes the levels.

#![allow(clippy::print_stdout)] // A command-line program.

mod changes;
mod job;
mod report;
mod schedule;
mod steps;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::report::Times;
use crate::steps::{Level, Table};

/// Runs the checks that every change must pass, or others.
#[derive(Parser)]
#[command(name = ".ci/run")]
struct Options {
    /// A level, `gate` or `full`, or names of steps
    #[arg(default_value = "gate")]
    selection: Vec<String>,
    /// List the steps instead of running them
    #[arg(long)]
    list: bool,
    /// Of the selected steps, run those whose files have changed since this commit
    #[arg(long, value_name = "BASE")]
    changed: Option<String>,
    /// Write the times of the steps that pass to tests/checks/times.txt
    #[arg(long)]
    record: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            println!("checks: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Runs the chosen steps, or lists them. Returns whether all have passed.
async fn run(options: &Options) -> Result<bool, String> {
    let path = root().join("tests/checks/steps.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let table = Table::parse(&text).map_err(|problem| format!("{}: {problem}", path.display()))?;
    let mut chosen = table.select(&options.selection)?;
    if let Some(base) = &options.changed {
        let changed = changes::since(base)?;
        chosen.retain(|step| changes::concern(step, &changed));
    }
    if options.list {
        report::list(&chosen);
        return Ok(true);
    }
    let chosen = table.with_prerequisites(&chosen);
    let begin = changes::Tree::now()?;
    let mut times = Times::read();
    let results = schedule::run(&table, &chosen, &times).await?;
    let passed = report::summary(&results, &times);
    if passed && options.changed.is_none() && is_level(&options.selection) {
        begin.note_success(&results)?;
    }
    // This changes the work tree.
    if options.record {
        times.record(&results)?;
    }
    Ok(passed)
}

/// Whether a selection is a level rather than names of steps.
fn is_level(selection: &[String]) -> bool {
    matches!(selection, [one] if Level::of(one).is_some())
}

/// The root of the project, in which `.ci/run` starts this program. Its tests start in its own
/// folder.
fn root() -> PathBuf {
    let here = std::env::current_dir().expect("a working directory");
    let is_root = |folder: &&Path| folder.join("tests/checks/steps.toml").exists();
    here.ancestors().find(is_root).unwrap_or(&here).to_owned()
}

/// Cargo's folder for what it builds.
fn target() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    root().join(folder)
}
