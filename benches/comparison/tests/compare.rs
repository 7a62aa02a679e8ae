//! The comparison as people run it: what it writes, how it goes on, and that nothing it has started
//! outlives it. What it measures is not judged.

use std::fs;
use std::process::{Command, Output, Stdio};

use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::process::eventually;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde_json::Value;

/// The status of a program that `SIGTERM` has ended.
const TERMINATED: i32 = 128 + 15;

/// The program, without the servers of this machine: Lockwheel alone.
fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(arguments).env("LOCKWHEEL_TEST_REDIS_SERVER", daemon::program());
    command.env_remove("LOCKWHEEL_TEST_DEBIAN_13").stdin(Stdio::null());
    command
}

/// What it measures with, all on one processor that there is.
fn on_a_core(arguments: &[&str]) -> Command {
    let cores = sched_getaffinity(Pid::from_raw(0)).expect("a set of processors");
    let is_allowed = |core: &usize| cores.is_set(*core).is_ok_and(|is_set| is_set);
    let core = (0..CpuSet::count()).find(is_allowed).expect("a processor").to_string();
    compare(&[arguments, &["--server-core", &core, "--client-core", &core]].concat())
}

fn run(mut command: Command) -> Output {
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Processes other than the given one that were started with this among their arguments.
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
fn an_outcome_is_kept_and_told_in_every_form() {
    let folder = Folder::new();
    let (kept, page) = (folder.path("figures.json"), folder.path("page.md"));
    let measure = ["--quick", "--seconds", "0.01", "--only", "PING", "--save", &kept];
    let output = run(on_a_core(&[&measure[..], &["--format", "json"]].concat()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(figures["figures"].as_array().is_some_and(|all| !all.is_empty()), "{figures}");

    // Nothing is left to be measured: what is told is what was kept.
    let output = run(on_a_core(&[&measure[..], &["--resume", "--format", "json"]].concat()));
    let resumed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(resumed["figures"], figures["figures"]);

    let table = run(compare(&["render", &kept]));
    assert!(text(&table.stdout).contains("PING"), "{}", text(&table.stdout));
    let markdown = run(compare(&["render", &kept, "--format", "markdown"]));
    assert!(text(&markdown.stdout).contains("\n|---"), "{}", text(&markdown.stdout));
    let nowhere = run(compare(&["render", &kept, "--format", "page"]));
    assert!(text(&nowhere.stderr).contains("a page needs --output"));
    let output = run(compare(&["render", &kept, "--format", "page", "--output", &page]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read_to_string(&page).expect("a page").starts_with("# Performance\n"));
}

#[test]
fn what_cannot_be_done_is_said() {
    for (arguments, complaint) in [
        (&["--only", "no such thing"][..], "no workload has that in its name"),
        (&["--peers", "nobody"], "no server has that in its name"),
        (&["--peer", "nameless"], "--peer is NAME=COMMAND"),
        (&["--peer", "Other=/no/such/server"], "/no/such/server: No such file"),
        (&["--only", "PING", "--output", "/no/such/folder/file"], "No such file"),
        (&["render", "/no/such/file"], "/no/such/file: No such file"),
    ] {
        let output = run(compare(arguments));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(complaint), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn the_servers_end_with_it() {
    let folder = Folder::new();
    let socket = folder.path("socket");
    let server = daemon::program().display();
    let peer = format!("Other={server} --unixsocket {socket}");
    let arguments = ["--only", "PING", "--peers", "Other", "--seconds", "600", "--peer", &peer];
    let mut child = on_a_core(&arguments).stderr(Stdio::piped()).spawn().expect("it runs");
    eventually("a server", || !started_with(&socket, child.id()).is_empty());
    let kill = Command::new("kill").arg(child.id().to_string()).status();
    assert!(kill.expect("kill runs").success());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(TERMINATED));
    eventually("the end of its servers", || started_with(&socket, child.id()).is_empty());
}
