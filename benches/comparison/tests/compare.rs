//! Tests of the program `compare`: its output, resuming a run, and ending its servers. The measured
//! values are not checked.

use std::fs;
use std::process::{Command, Output, Stdio};

use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::process::eventually;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde_json::Value;

/// The exit status of a program ended by `SIGTERM`.
const TERMINATED: i32 = 128 + 15;

/// The program, without other servers that are installed.
fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(arguments).env("LOCKWHEEL_TEST_REDIS_SERVER", daemon::program());
    command.env_remove("LOCKWHEEL_TEST_DEBIAN_13").stdin(Stdio::null());
    command
}

/// The program with servers and clients on one available processor.
fn on_one_core(arguments: &[&str]) -> Command {
    let cores = sched_getaffinity(Pid::from_raw(0)).expect("a set of processors");
    let is_allowed = |core: &usize| cores.is_set(*core).is_ok_and(|is_set| is_set);
    let core = (0..CpuSet::count()).find(is_allowed).expect("a processor").to_string();
    compare(&[arguments, &["--server-core", &core, "--client-core", &core]].concat())
}

fn run(mut command: Command) -> Output {
    command.output().expect("a process")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The processes with this argument, except the given one.
fn started_with(argument: &str, except: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("the processes").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one = |process: &u32| {
        let arguments = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        *process != except && text(&arguments).contains(argument)
    };
    numbers.filter(is_one).collect()
}

#[test]
fn outcome_is_saved_and_written_in_every_format() {
    let folder = Folder::new();
    let (saved, page) = (folder.path("figures.json"), folder.path("page.md"));
    let measure = ["--quick", "--seconds", "0.01", "--only", "PING", "--save", &saved];
    let output = run(on_one_core(&[&measure[..], &["--format", "json"]].concat()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(figures["figures"].as_array().is_some_and(|all| !all.is_empty()), "{figures}");

    // All workloads are saved, so that nothing is measured.
    let output = run(on_one_core(&[&measure[..], &["--resume", "--format", "json"]].concat()));
    let resumed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(resumed["figures"], figures["figures"]);

    let table = run(compare(&["render", &saved]));
    assert!(text(&table.stdout).contains("PING"), "{}", text(&table.stdout));
    let markdown = run(compare(&["render", &saved, "--format", "markdown"]));
    assert!(text(&markdown.stdout).contains("\n|---"), "{}", text(&markdown.stdout));
    let nowhere = run(compare(&["render", &saved, "--format", "page"]));
    assert!(text(&nowhere.stderr).contains("a page needs --output"));
    let output = run(compare(&["render", &saved, "--format", "page", "--output", &page]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&page).expect("a page").starts_with("# Performance\n"));
}

#[test]
fn cycles_are_measured_over_tls() {
    let only = ["--only", "Redisson 4.7 cycle, 50", "--only", "PING"];
    let output =
        run(on_one_core(&[&["--tls", "--quick", "--seconds", "0.01"], &only[..]].concat()));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn nodes_that_replicate_are_measured_beside_one() {
    let measure = ["--replication", "--quick", "--seconds", "0.01", "--only", "16 clients"];
    let peers = ["--peers", "one node,Lockwheel", "--format", "json"];
    let output = run(on_one_core(&[&measure[..], &peers].concat()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let peers = figures["peers"].as_array().expect("servers");
    let names: Vec<_> = peers.iter().filter_map(|peer| peer["name"].as_str()).collect();
    assert_eq!(names, ["Lockwheel, one node", "Lockwheel, three nodes"]);
}

#[test]
fn impossible_requests_are_reported() {
    for (arguments, error) in [
        (&["--only", "no such thing"][..], "no workload has that in its name"),
        (&["--peers", "no such server"], "no server has that in its name"),
        (&["--peer", "nameless"], "--peer is NAME=COMMAND"),
        (&["--peer", "Other=/no/such/server"], "/no/such/server: No such file"),
        (&["--only", "PING", "--output", "/no/such/folder/file"], "No such file"),
        (&["render", "/no/such/file"], "/no/such/file: No such file"),
    ] {
        let output = run(compare(arguments));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(error), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn servers_end_with_the_program() {
    let folder = Folder::new();
    let socket = folder.path("socket");
    let server = daemon::program().display();
    let peer = format!("Other={server} --unixsocket {socket}");
    let arguments = ["--only", "PING", "--peers", "Other", "--seconds", "600", "--peer", &peer];
    let mut child = on_one_core(&arguments).stderr(Stdio::piped()).spawn().expect("a process");
    eventually("a server", || !started_with(&socket, child.id()).is_empty());
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.expect("kill runs").success());
    let status = child.wait().expect("an exit status");
    assert_eq!(status.code(), Some(TERMINATED));
    eventually("the end of its servers", || started_with(&socket, child.id()).is_empty());
}
