//! `lockwheel run`: runs a command with a server, and ends with the status of the command.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::process::{end_of, output, output_of};

/// Defines `ask ...` in a shell script: a request to the server.
const ASK: &str = r#"ask() { "$PROGRAM" cli -u "$REDIS_URL" --no-auth-warning "$@"; }; "#;

fn command(options: &[&str], words: &[&str]) -> Command {
    let all = [&["run"], options, &["--"], words].concat();
    let mut command = daemon::command(&Folder::new(), &all);
    let program = command.get_program().to_owned();
    command.current_dir(std::env::temp_dir()).env("PROGRAM", program);
    command
}

/// Runs a shell script.
fn shell(options: &[&str], script: &str) -> Output {
    output(&mut command(options, &["sh", "-c", &format!("{ASK}{script}")]))
        .expect("the program runs")
}

#[track_caller]
fn check(options: &[&str], script: &str, stdout: &str, stderr: &str) {
    let output = shell(options, script);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (stdout.into(), stderr.into()));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn command_gets_a_server_for_tests() {
    check(&[], "ask ping; ask lockwheel check", "PONG\nOK\n", "");
    check(&[], r#""$PROGRAM" cli -h "$REDIS_HOST" -p "$REDIS_PORT" ping"#, "PONG\n", "");
    check(&["--env", "A_URL", "--env", "B"], r#"[ "$A_URL$B" = "$REDIS_URL$REDIS_URL" ]"#, "", "");
    check(&["--requirepass", "a b/@:"], "ask echo yes", "yes\n", "");
    check(&["--databases", "3"], "ask -n 2 config get databases", "databases\n3\n", "");
    check(&["--frozen"], "ask lockwheel clock | grep -c '\"rate\":0.0'", "1\n", "");
    check(&[], "ask lockwheel clock | grep -c '\"rate\":1.0'", "1\n", "");
}

#[test]
fn save_points_without_log_warn() {
    check(
        &["--save", "60 1"],
        "ask config get save",
        "save\n\n",
        "lockwheel run: save: nothing is written to disk without 'appendonly yes': all keys and \
         locks are lost when the server ends\n",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn password_is_not_in_the_process_list() {
    let show = r#"tr '\0' ' ' < /proc/$PPID/cmdline | grep -o 'run .*[^ ]'"#;
    let options = ["--requirepass", "s3cret", "--port", "0"];
    let output = output(&mut command(&options, &["sh", "-c", show]));
    let stdout = String::from_utf8_lossy(&output.expect("it runs").stdout).into_owned();
    assert_eq!(stdout, format!("run -- sh -c {show}\n"));
}

#[test]
fn server_may_listen_on_a_socket_only() {
    let folder = Folder::new();
    let path = folder.path("redis.sock");
    let script = format!(r#"echo "$REDIS_URL$REDIS_PORT"; "$PROGRAM" cli -s '{path}' ping"#);
    check(&["--unixsocket", &path], &script, &format!("unix://{path}\nPONG\n"), "");
}

#[test]
fn options_override_the_configuration_file() {
    let folder = Folder::new();
    let path = folder.path("redis.conf");
    std::fs::write(&path, "port 1\ntimeout 5\ndatabases 3\n").expect("a file");
    let script = "ask config get timeout; ask config get databases";
    check(&[&path, "--timeout", "6"], script, "timeout\n6\ndatabases\n3\n", "");
}

/// A shell command that takes a lock and does not release it.
const TAKE: &str = "ask set lock token nx px 30000 > /dev/null; ";

#[test]
fn failed_check_fails_a_command_that_succeeded() {
    let output = shell(&["--frozen", "--check", "no-lock-held,lint"], TAKE);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("lockwheel run: no-lock-held: client "), "{text}");
    assert_eq!(text.matches("acquired 'lock'").count(), 1, "{text}");
    // Both checks fail, and their entries are printed once.
    let script = format!("{TAKE}ask persist lock > /dev/null; ask set lock:a b nx > /dev/null");
    let output = shell(&["--check", "every-lock-has-a-lease", "--check", "lint"], &script);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("lockwheel run: every-lock-has-a-lease: "), "{text}");
    assert!(text.contains("lockwheel run: lint: the lock 'lock:a' has no lease"), "{text}");
    assert_eq!(text.matches("acquired 'lock:a'").count(), 1, "{text}");
}

#[test]
fn check_that_holds_changes_nothing() {
    let script = format!("{TAKE}ask lockwheel clock advance 30s > /dev/null");
    check(&["--frozen", "--check", "no-lock-held"], &script, "", "");
    // Neither does a check of a command that failed.
    let output = shell(&["--frozen", "--check", "no-lock-held"], &format!("{TAKE}exit 7"));
    assert_eq!(output.status.code(), Some(7));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("lockwheel run: a lock is still held:\n"), "{text}");
}

#[test]
fn unknown_names_are_refused_before_the_command_is_run() {
    let known = "no-lock-held, never-two-holders, every-lock-has-a-lease, released-only-by-owner, \
                 refused-by-own-token, no-waiter-lost, renewed-before-expiry, lint";
    let nearest = "did you mean no-lock-held?";
    for (options, reason) in [
        (&["--check", "no-locks-held"][..], {
            format!("unknown check 'no-locks-held'; {nearest} Known: {known}")
        }),
        (&["--check", "lint,"], format!("unknown check ''. Known: {known}")),
        (&["--check"], "--check needs the names of checks".to_owned()),
        (&["--chek", "lint"], "unknown option '--chek'; did you mean --check?".to_owned()),
    ] {
        let output = shell(options, "echo it runs");
        assert_eq!(output.status.code(), Some(125));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((&*output.stdout, text), (&b""[..], format!("lockwheel run: {reason}\n")));
    }
    let output = shell(&["--databses", "3"], "echo it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]));
    assert!(text.contains("unknown directive 'databses'; did you mean databases?"), "{text}");
}

#[test]
fn locks_still_held_are_listed() {
    check(
        &["--frozen"],
        "ask set job:1 token-1 NX PX 30000; ask -n 2 setnx lock:2 token-2",
        "OK\n1\n",
        "lockwheel run: 2 locks are still held:\n  \
         'job:1' by 'token-1', client 1, for 30000 ms more\n  \
         'lock:2' in database 2 by 'token-2', client 2, without a lease\n",
    );
    check(
        &[],
        "ask set job:1 token-1 NX PX 30000; ask del job:1; ask set data 1",
        "OK\n1\nOK\n",
        "",
    );
}

#[test]
fn status_is_that_of_the_command() {
    let code = |words: &[&str]| {
        let output = output(&mut command(&[], words)).expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(code(&["true"]), (Some(0), String::new()));
    assert_eq!(code(&["sh", "-c", "exit 7"]), (Some(7), String::new()));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), (Some(137), String::new()));
    let (status, stdout) = code(&["no-such-command"]);
    assert_eq!(status, Some(127), "{stdout}");
    assert!(stdout.starts_with("lockwheel run: no-such-command: No such file"), "{stdout}");
    let (status, stdout) = code(&[&std::env::temp_dir().to_string_lossy()]);
    assert_eq!(status, Some(126), "{stdout}");
    assert!(stdout.contains("Permission denied"), "{stdout}");
}

#[test]
fn command_is_not_run_without_a_server() {
    let cases: [&[&str]; 4] = [
        &["run", "true"],
        &["run", "--env", "--", "true"],
        &["run", "--no-such-option", "1", "--", "touch", "made"],
        &["run", "-", "--", "touch", "made"],
    ];
    for arguments in cases {
        let output = daemon::run(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stderr.starts_with(b"lockwheel run: "), "{arguments:?}");
    }
    let help = daemon::run(&["run", "--help"]);
    assert!(help.status.success() && help.stdout.starts_with(b"Starts a server for a command"));
}

#[test]
fn streams_are_those_of_the_command() {
    let mut child = command(&[], &["sh", "-c", "cat; echo aside >&2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("its input is piped");
    input.write_all(b"text\n").expect("it is read");
    drop(input);
    let output = output_of(child, "its end");
    assert_eq!((&*output.stdout, &*output.stderr), (&b"text\n"[..], &b"aside\n"[..]));
}

/// In its own process group, so that no terminal signals the command too.
#[test]
fn signals_are_forwarded_to_the_command() {
    let script = "trap 'echo signalled; exit 9' INT TERM; echo ready; while :; do sleep 0.01; done";
    for signal in ["INT", "TERM"] {
        let mut command = command(&[], &["sh", "-c", script]);
        let mut child =
            command.process_group(0).stdout(Stdio::piped()).spawn().expect("the program runs");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut lines = output.lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        let words = [format!("-{signal}"), child.id().to_string()];
        assert!(Command::new("kill").args(words).status().expect("kill runs").success());
        assert_eq!(lines.next().as_deref(), Some("signalled"), "{signal}");
        assert_eq!(end_of(&mut child, "its end").code(), Some(9), "{signal}");
    }
}
