//! Every command table of `compat/` says the same on Lockwheel and on a real server.

use std::fs;
use std::path::Path;

use lockwheel_tests::PROTOCOLS;
use lockwheel_tests::differential::Table;
use lockwheel_tests::target::{Kind, Target};

#[test]
fn lockwheel_answers_as_redis_does() {
    assert_no_differences(|oracle, kind| Some(Target::lockwheel_like(oracle, kind)));
}

/// A table that differs from itself would accuse us of what is only chance.
#[test]
fn tables_hold_nothing_left_to_chance() {
    assert_no_differences(|_, kind| Target::redis_of(kind));
}

/// Starts what a real server is compared with.
type Start = fn(&Target, Kind) -> Option<Target>;

/// Runs each table in every protocol and mode, on servers of its own: what one table changes cannot
/// disturb another. Nothing is run twice: what depends on time is compared with what has passed.
fn assert_no_differences(start: Start) {
    let mut differences = Vec::new();
    for (name, text) in tables() {
        let table = Table { name: &name, text: &text };
        let Some(oracle) = Target::redis_of(table.kind()) else { return };
        let Some(ours) = start(&oracle, table.kind()) else { return };
        for protocol in PROTOCOLS {
            for &mode in table.modes() {
                differences.extend(table.compare(&ours, &oracle, protocol, mode));
            }
        }
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
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
