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

/// The program, with Lockwheel instead of the Redis that is installed: a build to compare with.
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

/// Runs briefly, with the outcome as JSON.
fn figures_of(arguments: &[&str]) -> (Value, String) {
    let briefly = ["--quick", "--seconds", "0.01", "--format", "json"];
    let output = run(on_one_core(&[&briefly, arguments].concat()));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    (serde_json::from_slice(&output.stdout).expect("JSON"), errors)
}

/// Each server with the server to which its ratios are, and whether it is another build.
fn peers(figures: &Value) -> Vec<(&str, &str, bool)> {
    fn peer(it: &Value) -> Option<(&str, &str, bool)> {
        Some((it["name"].as_str()?, it["base"].as_str()?, it["build"].as_bool()?))
    }
    figures["peers"].as_array().expect("servers").iter().filter_map(peer).collect()
}

const OLD: &str = "old (Lockwheel 0.1.0)";

#[test]
fn build_is_compared_in_plain_native_and_durable_workloads() {
    let old = format!("old={}", daemon::program().display());
    let native = ["--only", "native locks, 2 clients"];
    let durable = ["--durable", "--flush-delay-ms", "0", "--only", "delete, 1 connection"];
    for workloads in [&["--only", "PING", "--rounds", "2"][..], &native, &durable] {
        let builds = ["--peer", &old, "--peers", "old,lockwheel"];
        let (figures, _) = figures_of(&[&builds, workloads].concat());
        let names = peers(&figures);
        let redis = "Redis (Lockwheel 0.1.0)";
        assert_eq!(names[..2], [(redis, redis, true), (OLD, redis, true)], "{workloads:?}");
        assert_eq!(names[2], ("Lockwheel", redis, false), "{workloads:?}");
        let compared = figures["compared"].as_array().expect("ratios").iter();
        let ratios = compared.filter(|it| it["peer"] == "Lockwheel" && it["ratio"].is_object());
        assert!(ratios.count() > 0, "{figures}");
    }
}

#[test]
fn nodes_that_replicate_are_measured_beside_one_and_beside_another_build() {
    let peers_of_run = ["--replication", "--only", "16 clients", "--peers", "Lock,floor"];
    let (figures, _) = figures_of(&peers_of_run);
    let [one, three] =
        ["one node", "three nodes"].map(|it| format!("Redis (Lockwheel 0.1.0), {it}"));
    let expected = [
        (&*one, &*one, true),
        (&three, &one, true),
        ("Lockwheel, one node", &one, false),
        ("Lockwheel, three nodes", &three, false),
        ("floor, one node", &one, false),
        ("floor, three nodes", &one, false),
    ];
    assert_eq!(peers(&figures), expected);
    let compared = figures["compared"].as_array().expect("ratios").iter();
    let ratios = compared.filter(|it| it["base"] == *three && it["ratio"].is_object());
    assert!(ratios.count() > 0, "{figures}");
    let all = figures["figures"].as_array().expect("figures").iter();
    let of_rounds = all.filter(|it| it["name"] == "CPU of all nodes per round");
    let of_floor = of_rounds.filter(|it| it["peer"] == "floor, three nodes");
    assert!(of_floor.count() > 0, "{figures}");
}

#[test]
fn durable_server_is_shown_beside_the_floor() {
    let only = ["--flush-delay-ms", "0", "--only", "delete, 1 connection"];
    let briefly = ["--durable", "--quick", "--seconds", "0.01", "--format", "markdown"];
    let peers = ["--peers", "Lockwheel,floor"];
    let output = run(on_one_core(&[&briefly[..], &only, &peers].concat()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    let group = "SET NX PX and compare-and-delete, beside the floor\n";
    let (_, table) = page.split_once(group).unwrap_or_else(|| panic!("{page}"));
    assert!(table.contains("Lockwheel; **ratio to floor**"), "{page}");
    assert!(table.contains("| server CPU per operation, us | "), "{page}");
}

#[test]
fn server_that_cannot_run_with_a_log_is_left_out() {
    let folder = Folder::new();
    let (script, server) = (folder.path("server"), daemon::program().display());
    let text = format!("case \"$*\" in *'appendonly yes'*) exit 3;; esac\nexec {server} \"$@\"\n");
    fs::write(&script, text).expect("a script");
    let peer = format!("old=sh {script}");
    let only = ["--durable", "--flush-delay-ms", "0", "--only", "write of 200 bytes"];
    let (figures, errors) = figures_of(&[&["--peer", &peer][..], &only].concat());
    assert!(errors.contains("old (Lockwheel 0.1.0) is not measured: "), "{errors}");
    assert!(peers(&figures).iter().all(|(name, ..)| *name != OLD), "{figures}");
}

#[test]
fn impossible_requests_are_reported() {
    for (arguments, error) in [
        (&["--only", "no such thing"][..], "no workload has that in its name"),
        (&["--peers", "no such server"], "no server has that in its name"),
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
