//! `lockwheel log`: what it prints, its exit status, and what a server makes of its work.

use std::fs;
use std::process::Command;

use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::process::eventually;
use serde_json::{Value, json};

/// The first segment of a log.
const FIRST: &str = "00000000000000000001.log";
/// The segment that follows one with a unit.
const SECOND: &str = "00000000000000000002.log";
/// The length of the first frame of a segment.
const BEGINNING_BYTES: usize = 96;

/// A server with a log in the folder `data`.
fn start(folder: &Folder, data: &str) -> (Daemon, u16) {
    let dir = folder.path(data);
    fs::create_dir_all(&dir).expect("a folder");
    let mut server = Daemon::start(&["--port", "0", "--appendonly", "yes", "--dir", &dir]);
    let port = server.wait_for_port();
    (server, port)
}

fn stop(mut server: Daemon) {
    server.signal("TERM");
    assert!(server.end().success(), "{}", server.log_text);
}

/// A log of these commands; the path of its directory.
fn log_of(folder: &Folder, commands: &[&str]) -> String {
    let (server, port) = start(folder, "data");
    let mut wire = server.connect(port);
    for command in commands {
        let reply = wire.ask(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    stop(server);
    folder.path("data/appendonlydir")
}

/// Runs the subcommand; its exit status, and what it prints.
fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let output = daemon::run(&[&["log"], words].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[track_caller]
fn succeeds(words: &[&str]) -> String {
    let (status, stdout, stderr) = run(words);
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    stdout
}

#[track_caller]
fn fails(words: &[&str]) -> (String, String) {
    let (status, stdout, stderr) = run(words);
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    (stdout, stderr)
}

fn damage(path: &str, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("a file");
}

#[test]
fn check_describes_a_log_that_a_server_uses() {
    let folder = Folder::new();
    let (server, port) = start(&folder, "data");
    let log = folder.path("data/appendonlydir");
    assert_eq!(fails(&["check", &log]).1, format!("lockwheel log: {log}: there is no log\n"));
    let mut wire = server.connect(port);
    wire.ask("SET a 1");
    wire.ask("SET b 1");
    let text = succeeds(&["check", &log]);
    assert!(text.starts_with("snapshot: none\nsegments: 1, with 2 units after that\n"), "{text}");
    assert!(text.contains("\nlast position: 2\nepoch: 1\nlease clock: "), "{text}");
    assert!(text.ends_with("\nno damage found\n"), "{text}");
    wire.ask("SAVE");
    wire.ask("DEL a");
    let text = succeeds(&["check", &log]);
    assert!(text.starts_with("snapshot: at position 2\nsegments: 1, with 1 unit"), "{text}");
    stop(server);
    assert!(succeeds(&["check", &log]).contains("\nepoch: 1\n"), "a check is no start");
}

/// Shows G32, G36.
#[test]
fn check_names_the_place_of_damage() {
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1", "SET b 1"]);
    damage(&format!("{log}/{FIRST}"), 100);
    let (stdout, stderr) = fails(&["check", &log]);
    assert_eq!(stdout, "");
    let reason = format!(
        "{FIRST} is damaged at byte {BEGINNING_BYTES}: no frame, in a part that was flushed"
    );
    assert_eq!(stderr, format!("lockwheel log: {log}: {reason}\n"));
    assert_eq!(fails(&["export", &log, "--format", "aof"]), (String::new(), stderr));
}

/// A log of two starts, each with a segment of one unit; the server was killed.
fn log_of_two_starts(folder: &Folder) -> String {
    let log = log_of(folder, &["SET a 1"]);
    let (mut server, port) = start(folder, "data");
    assert_eq!(server.connect(port).ask("SET lock token NX PX 100000"), "+OK\r\n");
    server.signal("KILL");
    server.end();
    log
}

/// Checks that this reason refuses a start and a needless repair, and that a repair which is asked
/// for leaves a guard.
#[track_caller]
fn check_refused_until_repaired(folder: &Folder, log: &str, reason: &str) {
    assert_eq!(fails(&["check", log]).1, format!("lockwheel log: {log}: {reason}\n"));
    let dir = folder.path("data");
    let mut server = Daemon::start(&["--port", "0", "--appendonly", "yes", "--dir", &dir]);
    server.wait_for(reason);
    assert!(!server.end().success());
    let (stdout, _) = fails(&["repair", log]);
    assert!(stdout.starts_with(&format!("{reason}\n")), "{stdout}");
    succeeds(&["repair", log, "--yes"]);
    let text = succeeds(&["check", log]);
    assert!(text.contains("\nguard at the next start: repaired: "), "{text}");
    stop(start(folder, "data").0);
    succeeds(&["check", log]);
}

/// Shows G32, G36.
#[test]
fn damaged_beginning_of_the_last_segment_is_found() {
    let folder = Folder::new();
    let log = log_of_two_starts(&folder);
    let path = format!("{log}/{SECOND}");
    for byte in [0, 5, 9, 13, 25, 33, 65, 70, 95] {
        damage(&path, byte);
        let (_, stderr) = fails(&["check", &log]);
        assert!(stderr.contains(&format!("{SECOND} is damaged at byte 0: ")), "{stderr}");
        damage(&path, byte);
    }
    damage(&path, 40);
    let reason = format!("{SECOND} is damaged at byte 0: no frame, in a part that was flushed");
    check_refused_until_repaired(&folder, &log, &reason);
}

/// Shows G32, G36.
#[test]
fn missing_last_segment_is_found() {
    let missing = "is missing, which is the last segment according to ceiling";
    let folder = Folder::new();
    let log = log_of_two_starts(&folder);
    fs::remove_file(format!("{log}/{SECOND}")).expect("a segment");
    check_refused_until_repaired(&folder, &log, &format!("{SECOND} {missing}"));
    // A snapshot begins a segment.
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1", "SAVE", "SET lock token NX PX 100000"]);
    fs::remove_file(format!("{log}/{SECOND}")).expect("a segment");
    check_refused_until_repaired(&folder, &log, &format!("{SECOND} {missing}"));
}

/// Shows G28.
#[test]
fn damaged_ceiling_is_found() {
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1"]);
    damage(&format!("{log}/ceiling"), 20);
    check_refused_until_repaired(&folder, &log, "ceiling: the checksum is wrong");
    assert!(fs::exists(format!("{log}/ceiling.damaged")).expect("a folder"));
}

#[test]
fn repair_asks_before_it_loses_what_was_flushed() {
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1", "SET b 1", "SET c 1"]);
    let path = format!("{log}/{FIRST}");
    let bytes = fs::read(&path).expect("a file");
    let frame = (bytes.len() - BEGINNING_BYTES) / 3;
    damage(&path, BEGINNING_BYTES + frame + 10);
    let (stdout, stderr) = fails(&["repair", &log]);
    let lost = format!("lost: {} bytes, units 2 to 3\n", 2 * frame);
    assert!(stdout.contains("is damaged at byte") && stdout.ends_with(&lost), "{stdout}");
    assert!(stderr.contains("nothing was changed"), "{stderr}");
    let stdout = succeeds(&["repair", &log, "--yes"]);
    let end = format!("{lost}kept as {FIRST}.damaged\nthe log ends with unit 1\n");
    assert!(stdout.ends_with(&end), "{stdout}");
    let kept = fs::read(format!("{log}/{FIRST}.damaged")).expect("a file");
    assert_eq!(kept.len(), 2 * frame);
    let text = succeeds(&["check", &log]);
    let guard = "\nguard at the next start: repaired: units 2 to 3 are lost\n";
    assert!(text.contains(guard), "{text}");
    assert_eq!(succeeds(&["repair", &log]), "no damage found\n");
    let (server, port) = start(&folder, "data");
    let (_, stderr) = fails(&["repair", &log]);
    assert!(stderr.contains("another process uses the directory"), "{stderr}");
    let mut wire = server.connect(port);
    assert!(wire.ask("EXISTS a").contains('1'));
    assert!(wire.ask("EXISTS b").contains('0'));
    stop(server);
}

#[test]
fn interrupted_restoration_is_refused() {
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1", &format!("SET b {}", "v".repeat(100_000))]);
    fs::create_dir(folder.path("new")).expect("a folder");
    let restored = folder.path("new/appendonlydir");
    // The system ends the process when a file becomes too long.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 16; exec \"$@\"", "sh"]).arg(daemon::program());
    let status = limited.args(["log", "restore", &log, "--dir", &restored]).status();
    assert!(!status.expect("a process").success());
    let reason = "the restoration of a backup was interrupted";
    for words in [["check", &restored], ["repair", &restored]] {
        let (_, stderr) = fails(&words);
        assert!(stderr.contains(reason), "{stderr}");
    }
    let dir = folder.path("new");
    let mut server = Daemon::start(&["--port", "0", "--appendonly", "yes", "--dir", &dir]);
    server.wait_for(reason);
    assert!(!server.end().success());
    fs::remove_dir_all(&restored).expect("a folder");
    succeeds(&["restore", &log, "--dir", &restored]);
    let (server, port) = start(&folder, "new");
    assert!(server.connect(port).ask("LOCKWHEEL GUARD").contains("left_ms"));
    stop(server);
}

#[test]
fn restored_log_has_the_keys_of_the_backup() {
    let folder = Folder::new();
    let log = log_of(&folder, &["SET a 1", "SET b 2 NX PX 3600000"]);
    fs::create_dir(folder.path("new")).expect("a folder");
    let restored = folder.path("new/appendonlydir");
    let text = succeeds(&["restore", &log, "--dir", &restored]);
    assert!(text.contains("guard at the next start: restored from a backup"), "{text}");
    let (_, stderr) = fails(&["restore", &log, "--dir", &restored]);
    assert!(stderr.contains("the directory has a log already"), "{stderr}");
    let epoch = |log: &str| {
        let text = succeeds(&["check", log]);
        let line = text.lines().find_map(|line| line.strip_prefix("epoch: "));
        line.and_then(|epoch| epoch.parse::<u64>().ok()).expect("an epoch")
    };
    assert!(epoch(&restored) > epoch(&log) + 1_000_000);
    let (server, port) = start(&folder, "new");
    let mut wire = server.connect(port);
    // Locks may be held that the backup does not contain.
    assert!(wire.ask("GET b").starts_with("-LOADING"));
    assert_eq!(wire.ask("LOCKWHEEL GUARD END"), "+OK\r\n");
    assert!(wire.ask("GET b").contains('2'));
    stop(server);
    assert!(epoch(&restored) > epoch(&log) + 1_000_000);
}

#[test]
fn json_has_a_line_for_each_key() {
    let folder = Folder::new();
    let log = log_of(
        &folder,
        &[
            "SET text v\u{e9}",
            "SETRANGE bytes 1 x",
            "SETBIT bits 0 1",
            "HSET hash f 1 g 2",
            "RPUSH list b a",
            "ZADD zset 1.5 m inf n",
            "SADD set m",
            "SELECT 2",
            "XADD stream 1-1 f v",
            "XGROUP CREATE stream g 0",
            "XREADGROUP GROUP g c STREAMS stream >",
            "SET lease v PX 1",
            "SET far v PXAT 99999999999999",
        ],
    );
    let mut text = String::new();
    eventually("the lease to end", || {
        text = succeeds(&["export", &log, "--format", "json"]);
        !text.contains(r#""lease""#)
    });
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut lines: Vec<Value> = lines.collect();
    lines.sort_by_key(|line| line["key"].to_string());
    let values: Vec<(&Value, &Value)> =
        lines.iter().map(|line| (&line["key"], &line["value"])).collect();
    let expected = [
        ("bits", json!({"hex": "80"})),
        ("bytes", json!("\0x")),
        ("far", json!("v")),
        ("hash", json!([["f", "1"], ["g", "2"]])),
        ("list", json!(["b", "a"])),
        ("set", json!(["m"])),
        ("stream", lines[6]["value"].clone()),
        ("text", json!("v\u{e9}")),
        ("zset", json!([["m", 1.5], ["n", "inf"]])),
    ];
    let expected: Vec<(Value, Value)> =
        expected.into_iter().map(|(key, value)| (json!(key), value)).collect();
    assert_eq!(values, expected.iter().map(|(key, value)| (key, value)).collect::<Vec<_>>());
    let far = &lines[2];
    assert_eq!((&far["database"], &far["type"]), (&json!(2), &json!("string")));
    let deadline_ms = far["deadline_ms"].as_i64().expect("a deadline");
    assert!((99_999_999_999_999..100_000_000_000_050).contains(&deadline_ms), "{deadline_ms}");
    let stream = &lines[6]["value"];
    assert_eq!(stream["entries"], json!([["1-1", [["f", "v"]]]]));
    assert_eq!(stream["groups"][0]["pending"][0]["consumer"], json!("c"));
    let path = folder.path("keys.json");
    assert_eq!(succeeds(&["export", &log, "--format", "json", "--output", &path]), "");
    let file = fs::read_to_string(path).expect("a file");
    // A deadline may be shown a millisecond later.
    assert_eq!(file.lines().count(), text.lines().count());
}

#[test]
fn wrong_arguments_are_refused() {
    for words in [&["check"][..], &["export", "x"], &["repair"], &["restore", "x"], &["x"], &[]] {
        assert_eq!(run(words).0, Some(2), "{words:?}");
    }
    let (_, stderr) = fails(&["check", "no-such-directory"]);
    assert!(stderr.contains("no-such-directory: No such file"), "{stderr}");
    let (status, stdout, _) = run(&["--help"]);
    assert!(status == Some(0) && stdout.contains("Usage: lockwheel log"), "{stdout}");
}
