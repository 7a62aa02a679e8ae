//! `lockwheel lock`: runs a command while it holds a lock, on Lockwheel and on servers without
//! native locks.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use lockwheel::Server;
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::process::{end_of, eventually, output};
use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::{call, left_out, start};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// `lockwheel lock name ...` on the server at this port.
fn lock_on(port: u16, options: &[&str], script: &str) -> Command {
    let port = port.to_string();
    let server = ["lock", "name", "-p", &port];
    let words = [&server, options, &["--", "sh", "-c", script]].concat();
    let mut command = daemon::command(&Folder::new(), &words);
    command.current_dir(std::env::temp_dir());
    command
}

fn lock(server: &Server, options: &[&str], script: &str) -> Command {
    lock_on(server.addr().port(), options, script)
}

/// What a command has printed on both outputs, and its status.
fn end(command: &mut Command) -> (String, String, Option<i32>) {
    let Output { stdout, stderr, status } = output(command).expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(stdout), text(stderr), status.code())
}

/// A command that runs, and the lines that it prints.
fn begin(command: &mut Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    // In its own process group, so that no terminal is its own.
    let mut child = command
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    (child, output.lines())
}

fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    lines.next().expect("a line").expect("text")
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it runs");
}

/// Whether this process ignores a signal, as under `nohup`. What it starts ignores it, too.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    let bits = u64::from_str_radix(bits.trim(), 16).expect("a number");
    bits & (1 << (signal as u32 - 1)) != 0
}

/// Whether a process has ended, perhaps without that its parent has asked.
fn has_ended(process_id: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

/// The errors of a command that has ended.
fn errors(child: &mut Child) -> String {
    std::io::read_to_string(child.stderr.take().expect("its errors are piped")).expect("text")
}

#[test]
fn command_runs_while_the_lock_is_held() {
    let server = start(&[]);
    let is_held = r#"echo "token $LOCKWHEEL_FENCING_TOKEN"; cat; exit 7"#;
    let mut command = lock(&server, &[], is_held);
    command.stdin(Stdio::piped());
    let (mut child, mut lines) = begin(&mut command);
    let line = next(&mut lines);
    let token: u64 = line.strip_prefix("token ").expect("a token").parse().expect("a number");
    let holder = format!("{:?}", call(&server, "LOCK.INFO name"));
    assert!(holder.contains(&format!("Integer({token})")), "{holder}");
    drop(child.stdin.take());
    assert_eq!(end_of(&mut child, "its end").code(), Some(7));
    assert_eq!(format!("{:?}", call(&server, "EXISTS name")), "Integer(0)");
}

/// Runs the same checks with native locks, and with those of the real server.
fn on_both_servers(check: impl Fn(u16) + Sync) {
    let (server, redis) = (start(&[]), RedisServer::start());
    thread::scope(|scope| {
        match &redis {
            Some(redis) => drop(scope.spawn(|| check(redis.address().port()))),
            None => left_out::without("redis-server"),
        }
        check(server.addr().port());
    });
}

/// Sends a request to a server.
fn ask(port: u16, request: &str) {
    let port = port.to_string();
    let words: Vec<&str> = ["cli", "-p", &port].into_iter().chain(request.split(' ')).collect();
    let (_, stderr, status) = end(&mut daemon::command(&Folder::new(), &words));
    assert_eq!((&*stderr, status), ("", Some(0)), "{request}");
}

#[test]
fn one_command_runs_at_a_time() {
    on_both_servers(|port| {
        let mut first = lock_on(port, &[], "echo holds; cat");
        first.stdin(Stdio::piped());
        let (mut first, mut lines) = begin(&mut first);
        assert_eq!(next(&mut lines), "holds");
        for wait in ["0", "100ms"] {
            let (stdout, stderr, status) = end(&mut lock_on(port, &["--wait", wait], "echo runs"));
            let refusal = "lockwheel lock: not acquired: others hold the lock\n";
            assert_eq!((&*stdout, &*stderr, status), ("", refusal, Some(75)), "{wait}");
        }
        let (mut second, mut lines) = begin(&mut lock_on(port, &["--wait", "60s"], "echo follows"));
        drop(first.stdin.take());
        assert_eq!(next(&mut lines), "follows");
        assert_eq!(end_of(&mut first, "the end of the first").code(), Some(0));
        assert_eq!(end_of(&mut second, "the end of the second").code(), Some(0));
    });
}

#[test]
fn lease_is_renewed() {
    on_both_servers(|port| {
        let mut command = lock_on(port, &["--lease", "9s"], "echo holds; cat");
        command.stdin(Stdio::piped());
        let (mut holder, mut lines) = begin(&mut command);
        assert_eq!(next(&mut lines), "holds");
        // Longer than the lease.
        let (_, _, status) = end(&mut lock_on(port, &["--wait", "10s"], "true"));
        assert_eq!(status, Some(75));
        drop(holder.stdin.take());
        assert_eq!(end_of(&mut holder, "its end").code(), Some(0));
    });
}

#[test]
fn permits_and_shared_locks_need_lockwheel() {
    let server = start(&[]);
    let both = |options: &[&str]| {
        let mut command = lock(&server, options, "echo holds; cat");
        command.stdin(Stdio::piped());
        let mut holders = [begin(&mut command), begin(&mut command)];
        for (_, lines) in &mut holders {
            assert_eq!(next(lines), "holds");
        }
        let (_, _, status) = end(&mut lock(&server, &[options, &["--wait", "0"]].concat(), "true"));
        for (mut child, _) in holders {
            drop(child.stdin.take());
            assert_eq!(end_of(&mut child, "its end").code(), Some(0));
        }
        status
    };
    assert_eq!(both(&["--permits", "1/2"]), Some(75));
    assert_eq!(both(&["--shared"]), Some(0));
    let Some(redis) = RedisServer::start() else { return left_out::without("redis-server") };
    let (_, stderr, status) = end(&mut lock_on(redis.address().port(), &["--shared"], "true"));
    let refusal = "lockwheel lock: not acquired: --shared and --permits need Lockwheel, and the \
                   server is another one\n";
    assert_eq!((&*stderr, status), (refusal, Some(125)));
}

#[test]
fn command_that_loses_its_lock_is_ended() {
    on_both_servers(|port| {
        let script = "trap 'echo ended; exit 1' TERM; echo holds; while :; do sleep 0.01; done";
        let (mut child, mut lines) = begin(&mut lock_on(port, &["--lease", "30s"], script));
        assert_eq!(next(&mut lines), "holds");
        ask(port, "DEL name");
        assert_eq!(next(&mut lines), "ended");
        assert_eq!(end_of(&mut child, "its end").code(), Some(76));
        let lost = "lockwheel lock: lost: another client may hold the lock; the command is ended\n";
        let errors = errors(&mut child);
        assert!(errors.contains(lost), "{errors}");
    });
}

/// The command ends at SIGTERM. What it has started does not, and only SIGKILL ends that.
#[test]
fn all_that_the_command_has_started_ends_before_another_gets_the_lock() {
    let server = start(&[]);
    let script = "(trap '' TERM; while :; do sleep 0.01; done) & echo $!; wait";
    let (mut child, mut lines) = begin(&mut lock(&server, &["--lease", "12s"], script));
    let process_id: i32 = next(&mut lines).parse().expect("a number");
    call(&server, "LOCK.FORCE name");
    assert_eq!(end_of(&mut child, "its end").code(), Some(76));
    assert!(has_ended(process_id));
}

/// It ignores SIGTERM, and has a process of its own.
#[test]
fn command_is_killed_before_the_lease_ends_without_a_server() {
    let mut server = Daemon::start(&["--port", "0"]);
    let port = server.wait_for_port();
    let script = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.01; done";
    let (mut child, mut lines) = begin(&mut lock_on(port, &["--lease", "4s"], script));
    let process_id: i32 = next(&mut lines).parse().expect("a number");
    server.signal("STOP");
    assert_eq!(end_of(&mut child, "its end").code(), Some(76));
    eventually("the end of the command's process", || has_ended(process_id));
    server.signal("CONT");
    let errors = errors(&mut child);
    let lost = "lost: the lease could not be renewed; the command is ended";
    assert!(errors.contains(lost), "{errors}");
}

#[test]
fn command_goes_on_without_its_lock_if_asked() {
    let server = start(&[]);
    let script = "echo holds; cat";
    let options = ["--lease", "12s", "--on-lost", "continue"];
    let mut command = lock(&server, &options, script);
    command.stdin(Stdio::piped());
    let (mut child, mut lines) = begin(&mut command);
    assert_eq!(next(&mut lines), "holds");
    call(&server, "LOCK.FORCE name");
    let errors = BufReader::new(child.stderr.take().expect("its errors are piped")).lines();
    let is_lost = |line: String| line.contains(" lost: ") && line.ends_with("the command goes on");
    assert!(errors.map_while(Result::ok).any(is_lost));
    drop(child.stdin.take());
    assert_eq!(end_of(&mut child, "its end").code(), Some(76));
}

#[cfg(target_os = "linux")]
#[test]
fn command_ends_with_the_process_that_holds_its_lock() {
    let server = start(&[]);
    let (mut child, mut lines) =
        begin(&mut lock(&server, &[], "echo $$; while :; do sleep 0.01; done"));
    let process_id: i32 = next(&mut lines).parse().expect("a number");
    signal(&child, Signal::SIGKILL);
    end_of(&mut child, "its end");
    eventually("the end of the command", || has_ended(process_id));
    // Its output ends when no process has it any more.
    assert!(lines.next().is_none());
}

#[test]
fn signals_are_passed_on() {
    let server = start(&[]);
    let script = "trap 'echo signalled; exit 9' INT TERM HUP; echo holds; \
                  while :; do sleep 0.01; done";
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    for sent in signals.into_iter().filter(|signal| !is_ignored(*signal)) {
        let (mut child, mut lines) = begin(&mut lock(&server, &[], script));
        assert_eq!(next(&mut lines), "holds");
        signal(&child, sent);
        assert_eq!(next(&mut lines), "signalled", "{sent}");
        assert_eq!(end_of(&mut child, "its end").code(), Some(9), "{sent}");
        // While it waits for the lock, there is no command.
        call(&server, "LOCK.ACQUIRE name other TTL 600000");
        let (mut child, _) = begin(&mut lock(&server, &[], script));
        eventually("a client that waits", || lockwheel_tests::blocked_clients(&server) == 1);
        signal(&child, sent);
        assert_eq!(end_of(&mut child, "its end").code(), Some(128 + sent as i32), "{sent}");
        eventually("its end", || lockwheel_tests::blocked_clients(&server) == 0);
        call(&server, "LOCK.RELEASE name other");
    }
}

#[test]
fn mistakes_are_named() {
    let server = start(&[("requirepass", "secret")]);
    let port = server.addr().port();
    let (_, stderr, status) = end(&mut lock_on(port, &[], "true"));
    let expected = "lockwheel lock: not acquired: NOAUTH Authentication required.\n";
    assert_eq!((&*stderr, status), (expected, Some(125)));
    let (_, stderr, status) = end(lock_on(port, &[], "true").env("REDISCLI_AUTH", "secret"));
    assert_eq!((&*stderr, status), ("", Some(0)));
    for (options, problem) in [
        (&["--lease", "10ms"][..], "the shortest lease is 1s"),
        (&["--permits", "3/2"], "permits are written n/m, such as 1/4, with n from 1 to m"),
        (&["--wait", "30"], "a span is "),
        (&["--lock"], "unexpected argument '--lock' found"),
    ] {
        let (_, stderr, status) = end(&mut lock_on(port, options, "true"));
        assert!(stderr.contains(problem), "{stderr}");
        assert_eq!(status, Some(125), "{options:?}");
    }
    let words = ["lock", "name", "-p", &port.to_string(), "-a", "secret", "--", "/nowhere/x"];
    let (_, stderr, status) = end(&mut daemon::command(&Folder::new(), &words));
    let expected = "lockwheel lock: /nowhere/x: No such file or directory (os error 2)\n";
    assert_eq!((&*stderr, status), (expected, Some(127)));
    let closed = lockwheel_tests::redis_server::free_port();
    let (_, stderr, status) = end(&mut lock_on(closed, &["--wait", "0"], "true"));
    assert!(stderr.contains(": Connection refused"), "{stderr}");
    assert_eq!(status, Some(69));
}
