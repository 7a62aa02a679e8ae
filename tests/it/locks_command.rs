//! `lockwheel locks`: the table of locks.

use lockwheel_tests::daemon::{Daemon, run};

#[test]
fn table_marks_invisible_characters_and_names_owners() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    wire.send(&["SET", "lock:\u{200b}a\u{202e}\x1b[2J", "token", "NX"]);
    assert_eq!(wire.read_text().trim_end(), "+OK");
    assert!(wire.ask("LOCK.ACQUIRE lock:b me TTL 600000").starts_with('*'));
    let output = run(&["locks", "-p", &port.to_string(), "*a*"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("\nlock:\\u{200b}a\\u{202e}\\u{1b}[2J  0 "), "{table}");
    assert!(!table.contains(['\u{200b}', '\u{202e}', '\x1b']), "{table:?}");
    let output = run(&["locks", "-p", &port.to_string(), "lock:b"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = table.lines().nth(1).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words.get(..4), Some(&["lock:b", "0", "native-lock", "me"][..]), "{table}");
}
