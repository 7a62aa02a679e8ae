//! `lockwheel prove` and `lockwheel judge` on the command line: exit statuses, formats, rights, and
//! that servers are left as they were.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

use lockwheel::{Reply, Server};
use lockwheel_prove::Cause;
use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::process::{eventually, output, output_of};
use lockwheel_tests::redis_server::{RedisServer, free_port};
use serde_json::{Value, json};

use crate::boundaries::{read, root};

const GREEN: i32 = 0;
const FOUND: i32 = 1;
const UNUSABLE: i32 = 2;

/// A short run. Its leases are short, too, so that all uses of locks occur.
const SHORT: &[&str] = &["--duration", "3s", "--rate", "500", "--lease", "1s"];

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The keys of runs on a server.
fn keys(server: &Server) -> Reply {
    server.call(&["KEYS", "*lockwheel-prove:*"]).expect("an answer")
}

/// Checks that a run has left no key whose lease does not end.
#[track_caller]
fn check_no_key_is_left(server: &Server) {
    server.advance(Duration::from_secs(60)).expect("the server runs");
    assert_eq!(keys(server), Reply::Array(vec![]));
}

fn short_run(url: &str, more: &[&str]) -> Output {
    daemon::run(&[&["prove", url], SHORT, more].concat())
}

#[test]
fn unusable_arguments_are_explained_on_one_line() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for (arguments, complaint) in [
        (&["prove", "http://localhost"][..], "write redis://, rediss:// or unix://"),
        (&["prove", &url], "Connection refused (os error 111): start the server"),
        (&["prove", &url, &url], "--sentinel NAME, --replicated, --cluster or --redlock"),
        (&["prove", "--redlock", &url, &url], "at least three"),
        (&["prove", &url, "--pid", "2", "--every", "5s", "--lasts", "5s"], "less than --every"),
        (
            &["prove", &url, "--output", "/nowhere/report"],
            "/nowhere/report: No such file or directory (os error 2)",
        ),
        (&["judge", "/nowhere"], "/nowhere: No such file or directory (os error 2)"),
    ] {
        let output = daemon::run(arguments);
        let text = stderr(&output);
        assert_eq!((status(&output), &*stdout(&output)), (UNUSABLE, ""), "{arguments:?}: {text}");
        // A line says how large the load is before the servers are reached.
        let lines: Vec<_> = text.lines().filter(|it| !it.contains(" a second of all ")).collect();
        assert!(lines.len() == 1 && lines[0].contains(complaint), "{arguments:?}: {text}");
        assert!(!text.contains("socket"), "{arguments:?}: {text}");
    }
}

#[test]
fn choices_that_exclude_each_other_are_refused() {
    for arguments in [
        &["prove"][..],
        &["prove", "redis://h", "--cluster", "--replicated"],
        &["prove", "redis://h", "--demo", "lockwheel"],
        &["prove", "--cluster", "--demo", "lockwheel"],
        &["prove", "redis://h", "--manual", "--pid", "1"],
        &["prove", "redis://h", "--heal", "true"],
        &["prove", "redis://h", "--rate", "0"],
        &["prove", "redis://h", "--duration", "60"],
        &["prove", "redis://h", "--kinds", "set-nx,own"],
        &["prove", "--demo", "mongo"],
    ] {
        let output = daemon::run(arguments);
        assert_eq!((status(&output), &*stdout(&output)), (UNUSABLE, ""), "{arguments:?}");
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

#[test]
fn kind_that_only_lockwheel_has_is_refused_elsewhere_if_asked_for() {
    if let Some(redis) = RedisServer::start() {
        let url = format!("redis://{}", redis.address());
        let output = short_run(&url, &["--kinds", "set-nx,native"]);
        let text = stderr(&output);
        assert_eq!((status(&output), &*stdout(&output)), (UNUSABLE, ""), "{text}");
        assert!(text.contains("only Lockwheel has locks of kind native"), "{text}");
        let output = short_run(&url, &["--format", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(status(&output), GREEN, "{report}");
        assert!(!report["kinds"].to_string().contains("native"), "{report}");
    }
    let server = Server::start().expect("a server");
    let output = short_run(&server.url(), &["--kinds", "native", "--format", "json"]);
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["kinds"][0][0], "native");
    assert_eq!(report["kinds"].as_array().map(Vec::len), Some(1));
}

/// Without a fault nothing is found on a correct server, and the first line says what that means.
#[test]
fn correct_server_is_not_accused_and_keeps_its_data() {
    let server = Server::start().expect("a server");
    server.call(&["SET", "theirs", "value"]).expect("an answer");
    let output = short_run(&server.url(), &[]);
    let text = stdout(&output);
    assert_eq!(status(&output), GREEN, "{text}{}", stderr(&output));
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("No fault took effect: "), "{text}");
    assert!(text.contains("Locks granted twice: 0 of "), "{text}");
    assert!(!text.contains("Warnings"), "{text}");
    let load = "lockwheel prove: 500 requests a second of all clients together, for 3 s: ";
    assert!(stderr(&output).starts_with(load), "{}", stderr(&output));
    check_no_key_is_left(&server);
    assert_eq!(server.call(&["DBSIZE"]).expect("an answer"), Reply::Integer(1));
}

/// The tokens of a fenced lock have no lease.
#[test]
fn keys_without_a_lease_are_deleted() {
    let server = Server::start().expect("a server");
    let output = short_run(&server.url(), &["--kinds", "redisson-fenced"]);
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    check_no_key_is_left(&server);
}

#[test]
fn default_load_is_said_to_be_safe() {
    let server = Server::start().expect("a server");
    let output = daemon::run(&["prove", &server.url(), "--duration", "1s"]);
    let text = stderr(&output);
    let load =
        "100 requests a second of all clients together, for 1 s: safe for servers in production";
    assert!(text.contains(load), "{text}");
}

/// The user may do what the rule says, and needs no more.
#[test]
fn printed_rule_is_enough_for_a_run() {
    let server = Server::start().expect("a server");
    let output = daemon::run(&["prove", "--print-acl", &server.url()]);
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    let rule = stdout(&output).trim().replace(">PASSWORD", ">secret");
    assert!(rule.contains(" -@all ") && rule.contains("+lock.acquire"), "{rule}");
    let words: Vec<&str> = rule.split(' ').collect();
    assert_eq!(server.call(&words).expect("an answer"), Reply::OK);
    let url = format!("redis://{}:secret@{}", words[2], server.addr());
    let output = short_run(&url, &[]);
    let text = stdout(&output);
    assert_eq!(status(&output), GREEN, "{text}{}", stderr(&output));
    assert!(!text.contains("NOPERM") && !text.contains("Warnings"), "{text}");
    assert!(!text.contains("secret") && !stderr(&output).contains("secret"), "{text}");
    let denied = server.call(&["ACL", "LOG"]).expect("an answer");
    assert_eq!(denied, Reply::Array(vec![]));
    check_no_key_is_left(&server);
}

#[test]
fn rule_without_a_target_has_only_commands_that_every_server_has() {
    let output = daemon::run(&["prove", "--print-acl"]);
    assert!(!stdout(&output).contains("+lock."), "{}", stdout(&output));
    let output = daemon::run(&["prove", "--print-acl", "--sentinel", "main"]);
    assert!(stdout(&output).contains("\nACL SETUSER "), "{}", stdout(&output));
}

#[test]
fn user_without_rights_is_explained() {
    let server = Server::start().expect("a server");
    let words = "ACL SETUSER reader on >x ~* &* +@read +info +select";
    let reply = server.call(&words.split(' ').collect::<Vec<_>>()).expect("an answer");
    assert_eq!(reply, Reply::OK);
    let output = short_run(&format!("redis://reader:x@{}", server.addr()), &[]);
    let text = stderr(&output);
    assert_eq!((status(&output), &*stdout(&output)), (UNUSABLE, ""), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("NOPERM") && last.contains("--print-acl"), "{text}");
}

#[test]
fn password_can_be_in_the_environment() {
    let server = Server::builder().config("requirepass", "secret").start().expect("a server");
    let run = |password: &str| {
        let mut command = daemon::command(&Folder::new(), &["prove", &server.url(), "--kinds"]);
        command.args(["set-nx", "--duration", "5s"]).current_dir("/");
        let output = output(command.env("REDISCLI_AUTH", password)).expect("the program runs");
        (status(&output), stderr(&output))
    };
    let (code, text) = run("secret");
    assert_eq!(code, GREEN, "{text}");
    let (code, text) = run("wrong");
    assert!(code == UNUSABLE && text.contains("WRONGPASS"), "{text}");
    assert!(!text.contains("secret") && !text.contains(":wrong"), "{text}");
}

#[test]
fn report_is_written_in_each_format() {
    let server = Server::start().expect("a server");
    let folder = Folder::new();
    let path = folder.path("report");
    let report = |form: &str| {
        let more = ["--kinds", "set-nx", "--format", form, "--output", &path];
        let output = short_run(&server.url(), &more);
        assert_eq!(status(&output), GREEN, "{}", stderr(&output));
        assert!(stdout(&output).ends_with(&format!(" See {path}.\n")), "{}", stdout(&output));
        fs::read_to_string(&path).expect("a report")
    };
    let json: Value = serde_json::from_str(&report("json")).expect("JSON");
    assert_eq!((&json["format"], &json["verdict"]), (&json!(1), &json!("nothing found")));
    assert!(json["totals"]["granted"].as_u64() > Some(0), "{json}");
    assert_eq!(json["faults"], json!([]));
    let junit = quick_junit::Report::deserialize_from_str(&report("junit")).expect("JUnit");
    assert_eq!((junit.failures, junit.errors), (0, 0));
    let html = report("html");
    assert!(html.starts_with("<!doctype html>") && !html.contains("src=\"http"), "{html}");
}

/// A command makes a server fail, and another one undoes it; the report has both.
#[test]
fn commands_inject_faults() {
    let server = Server::start().expect("a server");
    let folder = Folder::new();
    let [broken, healed] = ["broken", "healed"].map(|name| folder.path(name));
    let (fault, heal) = (format!("touch {broken}"), format!("touch {healed}"));
    let more = ["--fault", &fault, "--heal", &heal, "--every", "300ms", "--lasts", "50ms"];
    let more = [&["prove", &server.url()], &more[..], &["--duration", "6s", "--format", "json"]];
    let output = daemon::run(&more.concat());
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = report["faults"][0]["name"].as_str().unwrap_or_default();
    assert_eq!(name, format!("`{fault}`, then `{heal}`"), "{report}");
    assert!(fs::exists(broken).is_ok_and(|it| it) && fs::exists(healed).is_ok_and(|it| it));
}

#[test]
fn interrupted_run_reports_and_cleans_up() {
    let server = Server::start().expect("a server");
    let mut command = daemon::command(&Folder::new(), &["prove", &server.url()]);
    command.args(["--duration", "10m", "--rate", "500", "--format", "json"]).current_dir("/");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    // Not only that of the probe.
    let is_used = || format!("{:?}", keys(&server)).contains("{set-nx");
    eventually("its first lock", is_used);
    let id = child.id().to_string();
    let kill = std::process::Command::new("kill").args(["-INT", &id]).status();
    assert!(kill.expect("kill runs").success());
    let output = output_of(child, "its end");
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["interrupted"], true);
    check_no_key_is_left(&server);
}

/// An acquire of a lock by a client that is granted, in JSON.
fn grant(client: &str, invoked_us: i64) -> Value {
    json!({
        "lock": "invoice", "client": client, "action": "acquire", "lease_ms": 30000,
        "invoked_us": invoked_us, "returned_us": invoked_us + 100, "answer": "granted",
    })
}

/// Judges these events.
fn judge(events: &[Value], options: &[&str]) -> Output {
    let folder = Folder::new();
    let path = folder.path("history.json");
    let document = json!({ "format": 1, "events": events });
    fs::write(&path, document.to_string()).expect("a file");
    daemon::run(&[&["judge", &path], options].concat())
}

#[test]
fn history_with_a_double_grant_is_found() {
    let events = [grant("a", 0), grant("b", 5_000_000)];
    let output = judge(&events, &[]);
    let text = stdout(&output);
    assert_eq!((status(&output), &*stderr(&output)), (FOUND, ""), "{text}");
    assert!(text.starts_with("Locks granted twice: 1 of 2. "), "{text}");
    assert!(text.contains("invoice") && !text.contains("fault took effect"), "{text}");
    assert!(text.contains("5,000,100"), "{text}");
    for form in ["json", "junit", "html"] {
        let output = judge(&events, &["--format", form]);
        assert_eq!(status(&output), FOUND, "{}", stderr(&output));
        assert!(stdout(&output).contains("invoice"), "{}", stdout(&output));
    }
}

#[test]
fn history_of_a_correct_lock_is_green() {
    let release = json!({
        "lock": "invoice", "client": "a", "action": "release",
        "invoked_us": 200, "returned_us": 300, "answer": "released",
    });
    let output = judge(&[grant("a", 0), release, grant("b", 400)], &[]);
    assert_eq!(status(&output), GREEN, "{}", stdout(&output));
    assert!(stdout(&output).starts_with("Locks granted twice: 0 of 2. "), "{}", stdout(&output));
}

#[test]
fn history_can_be_text_from_standard_input() {
    let text = "0..100 invoice a acquire 30s granted\n200..300 invoice b acquire 30s granted\n";
    let folder = Folder::new();
    let path = folder.path("history.txt");
    fs::write(&path, text).expect("a file");
    let mut command = daemon::command(&folder, &["judge", "-"]);
    command.stdin(fs::File::open(&path).expect("a file"));
    let output = command.output().expect("the program runs");
    assert_eq!(status(&output), FOUND, "{}", stderr(&output));
    assert!(stdout(&output).contains("standard input"), "{}", stdout(&output));
}

#[test]
fn malformed_history_is_explained_on_one_line() {
    let mut wrong = grant("b", 5_000_000);
    wrong["answer"] = "given".into();
    let output = judge(&[grant("a", 0), wrong], &[]);
    let text = stderr(&output);
    assert_eq!((status(&output), &*stdout(&output)), (UNUSABLE, ""), "{text}");
    let problem = "history.json: event 2: unknown variant `given`, expected one of `granted`";
    assert!(text.contains(problem) && text.lines().count() == 1, "{text}");
}

/// Reports link to the headings of the page.
#[test]
fn page_has_a_heading_for_each_cause() {
    let page = read(&root().join("docs/prove.md"));
    let headings: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    for cause in [
        Cause::PromotedReplica,
        Cause::OldPrimary,
        Cause::RestartLostData,
        Cause::ClockMoved,
        Cause::Unknown,
    ] {
        assert!(headings.iter().any(|it| it == cause.anchor()), "{}", cause.anchor());
    }
}
