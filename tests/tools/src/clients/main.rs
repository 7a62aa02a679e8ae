//! Runs the suites of the client libraries (`tests/clients/<language>/run`) on Lockwheel and on a
//! real `redis-server`, compares the results, and writes `docs/clients.md`.
//!
//! Fails if any test fails, if a test that passes on Redis is skipped or missing on Lockwheel, and
//! if a suite or a server crashes.

#![allow(clippy::print_stdout)] // A command-line program.

mod page;
mod scripts;
mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use lockwheel_tests::suites::report::{self, Comparison, Line};
use lockwheel_tests::suites::{self, Choice, ServerProgram};

use crate::page::Page;
use crate::scripts::{List, Listeners};
use crate::servers::Servers;

/// Runs the suites of the client libraries on Lockwheel and on a real redis-server.
/// If both servers are run, writes the page.
#[derive(Parser)]
#[command(name = "tests/clients/run")]
struct Options {
    #[command(flatten)]
    choice: Choice,
    /// Let a second engine verify the effects of Lockwheel's commands
    #[arg(long)]
    verify_effects: bool,
    /// Run on Lockwheel only, with the leader of three nodes as the main server
    #[arg(long, conflicts_with = "only_redis")]
    replicated: bool,
    /// List the suites
    #[arg(long)]
    list: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    suites::conclude(run(&Options::parse())).await
}

/// Runs the suites and returns the problems.
async fn run(options: &Options) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
    if options.list {
        println!("{}", suites::list(&folder).join("\n"));
        return Vec::new();
    }
    let languages = match options.choice.suites(&folder) {
        Ok(languages) => languages,
        Err(problem) => return vec![problem],
    };
    let kinds = match options.replicated {
        true => &[ServerProgram::Lockwheel],
        false => options.choice.kinds(),
    };
    let mut problems = Vec::new();
    let mut versions = BTreeMap::new();
    let path = folder.join("scripts.txt");
    let mut scripts = List::read(&path);
    let mut comparisons = BTreeMap::new();
    for language in &languages {
        let mut comparison = Comparison::default();
        for &kind in kinds {
            let suite = folder.join(language);
            let (mut lines, mut problems_found) =
                run_suite(options, &suite, kind, &mut versions, &mut scripts).await;
            // Redis is right by definition: a failure there is random, so it is run once more.
            if kind == ServerProgram::Redis && report::any_failed(&lines) {
                println!("{language} on Redis: something failed there, so all is tried once more");
                let (again, more) =
                    run_suite(options, &suite, kind, &mut versions, &mut scripts).await;
                lines = report::better(lines, again);
                problems_found.extend(more);
            }
            let place = |trouble| format!("{language} on {}: {trouble}", kind.name());
            problems.extend(problems_found.into_iter().map(place));
            comparison.add(kind, lines);
        }
        comparisons.insert(language.clone(), comparison);
        let (planned, all) = scripts.count(language);
        println!("{language}: of {all} scripts {planned} have a plan");
    }
    if let Err(error) = scripts.write(&path) {
        problems.push(format!("{}: {error}", path.display()));
    }
    conclude(kinds, &versions, &comparisons, &mut problems);
    problems
}

/// Runs one suite on its own servers. Returns its report and other problems.
async fn run_suite(
    options: &Options,
    suite: &Path,
    kind: ServerProgram,
    versions: &mut BTreeMap<ServerProgram, String>,
    scripts: &mut List,
) -> (Vec<Line>, Vec<String>) {
    let mut servers = match Servers::start(kind, options.verify_effects, options.replicated) {
        Ok(servers) => servers,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    // Both servers get the same requests.
    let listened_to = servers.keepers().filter(|_| kind == ServerProgram::Redis);
    let listeners = match Listeners::start(listened_to) {
        Ok(listeners) => listeners,
        Err(problem) => return (Vec::new(), vec![problem]),
    };
    versions.entry(kind).or_insert_with(|| servers.version());
    for missing in &servers.missing {
        println!("{}: goes without: {missing}", kind.name());
    }
    let report = servers.folder.path("report.jsonl");
    let mut environment = servers.environment();
    environment.push(("SUITE_REPORT", report.clone()));
    let ending = suites::run(suite, kind, &environment).await;
    let mut problems_found = servers.deaths();
    let lines = match Line::read_all(Path::new(&report)) {
        Ok(lines) => lines,
        Err(problem) => {
            problems_found.push(problem);
            Vec::new()
        }
    };
    problems_found.extend(ending.problem(suite, &lines));
    drop(servers);
    let (sent, differences) = listeners.finish();
    problems_found.extend(differences);
    problems_found
        .extend(scripts.add(&suite.file_name().unwrap_or_default().to_string_lossy(), &sent));
    (lines, problems_found)
}

/// Prints the results and, if both servers were run, writes the page.
fn conclude(
    kinds: &[ServerProgram],
    versions: &BTreeMap<ServerProgram, String>,
    comparisons: &BTreeMap<String, Comparison>,
    problems: &mut Vec<String>,
) {
    for (language, comparison) in comparisons {
        comparison.print(language, kinds);
        let place = |fault| format!("{language}: {fault}");
        problems.extend(comparison.faults(kinds).into_iter().map(place));
    }
    if kinds.len() < 2 {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/clients.md");
    let mut page = Page::read(&fs::read_to_string(&path).unwrap_or_default());
    for (language, comparison) in comparisons.iter().filter(|(_, it)| !it.is_empty()) {
        page.put(language, comparison, versions);
    }
    fs::write(&path, page.to_string()).expect("the page is written");
}
