//! Every command table of `compat/` gets the same replies from Lockwheel and a real server.

use std::fs;
use std::path::Path;

use lockwheel_tests::PROTOCOLS;
use lockwheel_tests::differential::Table;
use lockwheel_tests::target::{Kind, Target};

#[test]
fn lockwheel_replies_as_redis() {
    assert_no_differences(|oracle, kind| Some(Target::lockwheel_like(oracle, kind)));
}

/// Differences between a server and itself would be random, so that the comparison would be wrong.
#[test]
fn two_redis_servers_reply_the_same() {
    assert_no_differences(|_, kind| Target::redis_of(kind));
}

/// Starts the server to compare with a real one.
type Start = fn(&Target, Kind) -> Option<Target>;

/// Runs each table in every protocol and mode, on its own servers, so that tables do not affect
/// one another. No table is run again: times are compared with the time that has passed.
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
