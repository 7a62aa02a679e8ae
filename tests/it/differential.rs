//! Every command table of `compat/` says the same on Leasehold and on a real server.

use std::fs;
use std::path::Path;

use leasehold_tests::PROTOCOLS;
use leasehold_tests::differential::{Differences, Mode, Table};
use leasehold_tests::target::{Kind, Target};

#[test]
fn leasehold_answers_as_redis_does() {
    assert_no_differences(|oracle, kind| Some(Target::leasehold_like(oracle, kind)));
}

/// A table that differs from itself would accuse us of what is only chance.
#[test]
fn tables_hold_nothing_left_to_chance() {
    assert_no_differences(|_, kind| Target::redis_of(kind));
}

/// Starts what a real server is compared with.
type Start = fn(&Target, Kind) -> Option<Target>;

/// How often a table is run in which something differs. On a busy machine one of the two servers
/// may have to wait for so long that a second, or a short lease, is over. What differs by itself
/// differs every time.
const TRIES: usize = 3;

fn assert_no_differences(start: Start) {
    let mut differences = Vec::new();
    for (name, text) in tables() {
        let table = Table { name: &name, text: &text };
        let runs = PROTOCOLS.into_iter().flat_map(|protocol| {
            table.modes().iter().map(move |&mode| (protocol, mode)).collect::<Vec<_>>()
        });
        let (mut differing, mut found) = (runs.collect::<Vec<_>>(), Vec::new());
        for _ in 0..TRIES {
            let Some(differ) = run(&table, start, &differing) else { return };
            (differing, found) = differ.into_iter().unzip();
        }
        differences.extend(found.into_iter().flatten());
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
}

/// Runs a table in some protocols and modes, on servers of its own: what one table changes cannot
/// disturb another. Returns in which of them something differed, and what; `None` if there is
/// nobody to be compared with.
fn run(
    table: &Table<'_>,
    start: Start,
    runs: &[(u8, Mode)],
) -> Option<Vec<((u8, Mode), Differences)>> {
    if runs.is_empty() {
        return Some(Vec::new());
    }
    let oracle = Target::redis_of(table.kind())?;
    let ours = start(&oracle, table.kind())?;
    let compare = |&(protocol, mode): &(u8, Mode)| {
        ((protocol, mode), table.compare(&ours, &oracle, protocol, mode))
    };
    let differs = |(_, found): &((u8, Mode), Differences)| !found.is_empty();
    Some(runs.iter().map(compare).filter(differs).collect())
}

fn tables() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("compat");
    let entries = fs::read_dir(folder).expect("the tables are there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).expect("a table is text"))
    };
    paths.iter().map(read).collect()
}
