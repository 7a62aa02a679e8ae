//! What the program prints for mistakes on its command line and in its configuration: each entry of
//! `mistakes.txt` is a command, its whole output and its exit status.
//!
//! The commands run in one empty folder, in their order. `FOLDER` is its path; the process id and
//! the time of lines of the log are left out. With `LOCKWHEEL_WRITE_DOCS` set, the file is written:
//! read the difference.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use lockwheel_tests::daemon::{self, Daemon, Folder, command_of};
use lockwheel_tests::process::output;

use crate::boundaries::root;

const FILE: &str = "tests/it/mistakes.txt";
/// Begins a command.
const PROMPT: &str = "$ ";

#[test]
fn mistakes_are_explained() {
    let file = root().join(FILE);
    let expected = fs::read_to_string(&file).expect("the file");
    let folder = Folder::new();
    let mut text =
        "# Mistakes, and what the program prints for them: see mistakes.rs.\n".to_owned();
    let mut count = 0;
    for line in expected.lines() {
        if line.starts_with("# -") {
            writeln!(text, "\n{line}").expect("memory");
        }
        if let Some(script) = line.strip_prefix(PROMPT) {
            count += 1;
            let (printed, status) = run(&folder, script);
            writeln!(text, "\n{PROMPT}{script}\n{printed}[{status}]").expect("memory");
        }
    }
    assert!(count >= 40, "{count} mistakes");
    if std::env::var_os("LOCKWHEEL_WRITE_DOCS").is_some() {
        fs::write(&file, &text).expect("the file");
    }
    assert_eq!(text, expected, "{FILE}");
}

/// What a line of shell prints, which finds the program by its name, and its exit status.
fn run(folder: &Folder, script: &str) -> (String, i32) {
    let place = daemon::program().parent().expect("a folder");
    let path = std::env::var("PATH").expect("a search path");
    let mut command = command_of("sh", folder);
    command.args(["-c", &format!("exec 2>&1\n{script}")]);
    command.env("PATH", format!("{}:{path}", place.display()));
    // As few as every limit of open files permits.
    command.env("LOCKWHEEL_MAXCLIENTS", "10").env_remove("CLICOLOR_FORCE");
    let ended = output(&mut command).expect("a shell");
    let folder = fs::canonicalize(folder.path("")).expect("a folder");
    let printed = String::from_utf8_lossy(&ended.stdout);
    let printed = printed.replace(&*folder.to_string_lossy(), "FOLDER");
    let lines = printed.lines().map(|line| format!("{}\n", without_time(line)));
    (lines.collect(), ended.status.code().unwrap_or(-1))
}

/// A line of the log without process id and time.
fn without_time(line: &str) -> &str {
    let rest = line.split_once(":M ").filter(|(pid, _)| pid.bytes().all(|c| c.is_ascii_digit()));
    rest.and_then(|(_, rest)| rest.split_once(' ')).map_or(line, |(_, message)| message)
}

/// Debian's file names a folder for the pidfile that systemd makes.
#[test]
fn missing_folder_of_the_pidfile_is_a_warning() {
    let mut daemon = Daemon::start(&["--port", "0", "--pidfile", "missing/redis.pid"]);
    daemon.wait_for("# Failed to write PID file: cannot write the pidfile missing/redis.pid: ");
    let port = daemon.wait_for_port();
    assert_eq!(daemon.connect(port).call(&["PING"]), b"+PONG\r\n");
    assert!(!Path::new(&daemon.folder.path("missing")).exists());
}

#[test]
fn log_says_what_a_crash_costs_and_how_many_locks_were_held() {
    let crash = "* Without a log and a restart guard, a crash loses all locks";
    for (options, is_warned, end) in [
        (&[][..], true, "# Locks held: 1; they end with the server"),
        (&["--appendonly", "yes"], false, "* Locks held: 1; they are in the log"),
        (&["--restart-guard", "yes"], false, "# Locks held: 1; they end with the server"),
    ] {
        let mut daemon = Daemon::start(&[&["--port", "0"], options].concat());
        let port = daemon.wait_for_port();
        let mut wire = daemon.connect(port);
        assert_eq!(wire.call(&["SET", "lock:1", "a", "NX", "PX", "60000"]), b"+OK\r\n");
        daemon.signal("TERM");
        daemon.wait_for(end);
        assert!(daemon.end().success());
        assert_eq!(daemon.log_text.contains(crash), is_warned, "{}", daemon.log_text);
    }
}

/// The message of a line of the log in JSON.
fn message_in_json(line: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let has_rest = value["level"] == "notice" && value["pid"].is_u64() && value["time"].is_string();
    value["message"].as_str().filter(|_| has_rest).map(str::to_owned)
}

/// The message of a line of the log in pairs of name and value.
fn message_in_logfmt(line: &str) -> Option<String> {
    let (_, rest) = line.strip_prefix("pid=")?.split_once(" timestamp=\"")?;
    let (_, message) = rest.split_once("\" level=notice message=")?;
    serde_json::from_str(message).ok()
}

#[test]
fn log_has_formats_for_programs() {
    for name in ["json", "logfmt"] {
        let mut daemon =
            Daemon::start(&["--port", "0", "--log-format", name, "--appendonly", "yes"]);
        daemon.wait_for("Ready to accept connections tcp");
        daemon.signal("TERM");
        daemon.end();
        let message = |line: &str| match name {
            "json" => message_in_json(line),
            _ => message_in_logfmt(line),
        };
        let messages: Vec<Option<String>> = daemon.log_text.lines().map(message).collect();
        assert!(messages.len() > 5 && messages.iter().all(Option::is_some), "{}", daemon.log_text);
    }
}

#[test]
fn config_check_reads_what_a_start_reads() {
    let folder = Folder::new();
    fs::write(folder.path("good.conf"), "port 7000\nappendonly yes\nvm-enabled no\n")
        .expect("a file");
    let (printed, status) = run(&folder, "lockwheel config check good.conf --timeout 5");
    let expected = "warning: directives without effect: vm-enabled\n\
                    This configuration is valid.\n";
    assert_eq!((printed.as_str(), status), (expected, 0));
    let entries = fs::read_dir(folder.path("")).expect("a folder").count();
    assert_eq!(entries, 1, "nothing is written");
}
