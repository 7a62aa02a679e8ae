//! `lockwheel compat` as people and CI servers use it: exit status, forms of the report, and that
//! the server it was run on is left as it was.

use std::fs;
use std::process::{Output, Stdio};

use lockwheel::{Reply, Server};
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use serde_json::Value;

const GREEN: i32 = 0;
const NOT_GREEN: i32 = 1;
const UNUSABLE: i32 = 2;

/// One case that passes, and one that expects what no server says.
const WRONG: &str = "\
family: Strings
why: A lock would be lost.

== A value is kept
a> SET <k> v
a< +OK

== A value is another
a> SET <k> v
a< +OK
a> GET <k>
a< \"w\"
";

fn server() -> Server {
    Server::start().expect("a server")
}

fn compat(server: &Server, arguments: &[&str]) -> Output {
    let url = server.url();
    daemon::run(&[&["compat", &url], arguments].concat())
}

/// Plays cases of a file.
fn play(server: &Server, cases: &str, arguments: &[&str]) -> Output {
    let folder = Folder::new();
    let path = folder.path("own.txt");
    fs::write(&path, cases).expect("a file");
    compat(server, &[&["--cases", &path], arguments].concat())
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The databases that hold anything.
fn keyspace(server: &Server) -> String {
    match server.call(&["INFO", "keyspace"]).expect("an answer") {
        Reply::Bulk(bytes) | Reply::Verbatim { text: bytes, .. } => {
            String::from_utf8_lossy(&bytes).into_owned()
        }
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn a_good_server_is_green_and_keeps_what_it_had() {
    let server = server();
    server.call(&["SET", "theirs", "value"]).expect("an answer");
    let before = keyspace(&server);
    let output = compat(&server, &["--only", "Strings", "--only", "Functions"]);
    assert_eq!(status(&output), GREEN, "{}", said(&output));
    assert!(said(&output).contains("\nStrings "), "{}", said(&output));
    assert!(said(&output).contains("\nGreen, of what was chosen: "), "{}", said(&output));
    assert!(!said(&output).contains('\x1b'), "no terminal, no colours");
    assert_eq!(keyspace(&server), before);
    assert_eq!(server.call(&["GET", "theirs"]).expect("an answer"), Reply::bulk("value"));
    assert_eq!(server.call(&["FUNCTION", "LIST"]).expect("an answer"), Reply::Array(vec![]));
}

#[test]
fn a_failure_is_told_so_that_a_stranger_understands() {
    let output = play(&server(), WRONG, &[]);
    assert_eq!(status(&output), NOT_GREEN);
    let text = said(&output);
    for expected in [
        "FAILED  Strings: A value is another\n",
        "own.txt:12, RESP2 and RESP3\n",
        "  why it matters  A lock would be lost.\n",
        "  sent            a> GET <k>\n",
        "  expected        \"w\"\n",
        "  came            \"v\"\n",
        "    a> SET k v\n    a< +OK\n    a> GET k\n    a< \"v\"\n",
        "\nNot green: of 2 tried, 1 failed. It took ",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
    }
}

#[test]
fn programs_read_the_report() {
    let server = server();
    let output = play(&server, WRONG, &["--format", "json"]);
    assert_eq!(status(&output), NOT_GREEN);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["schema"], &report["green"]), (&Value::from(1), &Value::from(false)));
    assert_eq!(report["totals"]["tried"], 2);
    assert_eq!(report["families"][0]["passed"], 1);
    let case = &report["cases"][1];
    assert_eq!((&case["verdict"], &case["family"]), (&"failed".into(), &"Strings".into()));
    let failure = &case["failures"][0];
    assert_eq!((&failure["protocol"], &failure["line"]), (&2.into(), &12.into()));
    assert_eq!((&failure["expected"], &failure["came"]), (&"\"w\"".into(), &"\"v\"".into()));

    let output = play(&server, WRONG, &["--format", "junit"]);
    let report = quick_junit::Report::deserialize_from_str(&said(&output)).expect("JUnit");
    assert_eq!((report.tests, report.failures, report.errors), (2, 1, 0));

    let output = play(&server, WRONG, &["--format", "markdown"]);
    assert!(said(&output).contains("\n| Strings | 1/2 | 1 |  |  |  |\n"), "{}", said(&output));
}

#[test]
fn a_report_goes_to_a_file() {
    let folder = Folder::new();
    let path = folder.path("report.xml");
    let output = play(&server(), WRONG, &["--format", "junit", "--output", &path]);
    assert_eq!(status(&output), NOT_GREEN);
    assert!(fs::read_to_string(&path).expect("a file").contains("<testsuites"));
    assert!(said(&output).starts_with("Not green: "), "{}", said(&output));
}

#[test]
fn what_is_lacking_is_told_once_and_may_be_allowed() {
    let cases = "family: Strings\nwhy: x\n\n== one\na> FROBNICATE <k>\na< +OK\n\n\
                 == two\na> FROBNICATE <k>\na< +OK\n\n== three\na> PING\na< +PONG\n";
    let server = server();
    let output = play(&server, cases, &[]);
    assert_eq!(status(&output), NOT_GREEN);
    assert_eq!(said(&output).matches("FROBNICATE").count(), 1, "{}", said(&output));
    assert!(said(&output).contains("   2 cases need it\n"), "{}", said(&output));
    let output = play(&server, cases, &["--allow-missing"]);
    assert_eq!(status(&output), GREEN, "{}", said(&output));
}

#[test]
fn there_is_a_list() {
    let output = daemon::run(&["compat", "--list", "--only", "set nx refuses"]);
    assert_eq!(status(&output), GREEN);
    assert!(said(&output).starts_with("Strings\n  SET NX refuses"), "{}", said(&output));
    let output = daemon::run(&["compat", "--list", "--format", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = list["cases"].as_array().expect("cases");
    assert!(cases.iter().any(|case| case["client"] == "Redisson RLock"));
    assert!(cases.iter().any(|case| case["family"] == "Properties under contention"));
}

#[test]
fn a_case_is_recorded_beside_the_keys_of_others() {
    let server = server();
    server.call(&["SET", "theirs:<k>:", "value"]).expect("an answer");
    let output =
        play(&server, "family: x\nwhy: x\n\n== one\na> SET <k> v\na> KEYS *<k>\n", &["--record"]);
    assert_eq!(status(&output), GREEN, "{}", complained(&output));
    let heard = "== one\na> SET <k> v\na< +OK\na> KEYS *<k>\na< [\"<k>\"]\n\n";
    assert_eq!(said(&output), heard);
    assert_eq!(
        server.call(&["KEYS", "*"]).expect("an answer"),
        Reply::Array(vec![Reply::bulk("theirs:<k>:")])
    );
}

#[test]
fn where_nothing_can_be_tried_it_says_why() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for (arguments, complaint) in [
        (&["compat", &url][..], "Connection refused"),
        (&["compat"], "required"),
        (&["compat", "http://localhost"], "redis:// or unix://"),
        (&["compat", &url, "--only", "no such thing"], "nothing is called no such thing"),
        (&["compat", &url, "--cases", "/nowhere"], "/nowhere: No such file"),
        (&["compat", &url, "--patience", "0"], "no span of time: 0"),
    ] {
        let output = daemon::run(arguments);
        assert_eq!(status(&output), UNUSABLE, "{arguments:?}");
        assert!(complained(&output).contains(complaint), "{}", complained(&output));
        assert_eq!(said(&output), "", "{arguments:?}");
    }
}

#[test]
fn what_belongs_to_all_is_put_back_when_a_case_fails_half_way() {
    let cases = "family: Server\nwhy: x\nalone: yes\n\n\
                 == settings\na> CONFIG SET hz 17\na< +OK\na> PING\na< +NO\n\n\
                 == the next finds them as they were\na> CONFIG GET hz\na< {\"hz\": \"10\"}\n\
                 == functions\na> FUNCTION LOAD \"#!lua name=left\\n\
                 redis.register_function('left', function() end)\"\n\
                 a< \"left\"\na> PING\na< +NO\n\n\
                 == keys and a pause\na> SET <k> v\na< +OK\na> SELECT 3\na< +OK\n\
                 a> SET <k> v\na< +OK\na> CLIENT PAUSE 600000 WRITE\na< +NO\n";
    let server = server();
    let output = play(&server, cases, &["--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["totals"]["failed"], 3, "{}", said(&output));
    assert_eq!(report["notices"], Value::Array(vec![]));
    assert_eq!(server.call(&["FUNCTION", "LIST"]).expect("an answer"), Reply::Array(vec![]));
    assert!(!keyspace(&server).contains("keys="), "{}", keyspace(&server));
    server.call(&["SET", "k", "nobody is paused"]).expect("an answer");
}

#[test]
fn a_server_that_dies_is_told_of_once() {
    // At a port that nobody else is given when it is dead.
    let mut daemon = Daemon::start(&["--port", &free_port().to_string()]);
    let url = format!("redis://127.0.0.1:{}", daemon.wait_for_port());
    let folder = Folder::new();
    let path = folder.path("own.txt");
    let cases = "family: Server\nwhy: x\n\n== one\na> SHUTDOWN NOSAVE\na< +OK\n\n\
                 == two\na> PING\na< +PONG\n\n== three\na> PING\na< +PONG\n";
    fs::write(&path, cases).expect("a file");
    let output = daemon::run(&["compat", &url, "--cases", &path, "--jobs", "1"]);
    assert_eq!(status(&output), NOT_GREEN);
    let text = said(&output);
    assert!(text.contains("is dead (Connection refused"), "{text}");
    assert!(text.contains("since \"Server: one\" was tried"), "{text}");
    assert!(text.contains("Not tried: 2: the run was over."), "{text}");
}

#[test]
fn an_interrupted_run_cleans_up_and_tells_what_it_knows() {
    let server = server();
    let one = |number: u32| format!("== case {number}\na> SET <k> v\na< +OK\n+100ms\n\n");
    let cases: String = (0..1000).map(one).collect();
    let folder = Folder::new();
    let path = folder.path("own.txt");
    fs::write(&path, format!("family: Strings\nwhy: x\n\n{cases}")).expect("a file");
    let mut command = daemon::command(&folder, &["compat", &server.url(), "--cases", &path]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program runs");
    eventually("its first key", || keyspace(&server).contains("keys="));
    let id = child.id().to_string();
    let kill = std::process::Command::new("kill").args(["-INT", &id]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(status(&output), NOT_GREEN, "{}", complained(&output));
    let ending = "The run did not complete: interrupted.";
    assert!(said(&output).contains(ending), "{}", said(&output));
    assert!(!keyspace(&server).contains("keys="), "{}", keyspace(&server));
}

#[test]
fn nobody_needs_to_listen_to_the_end() {
    let server = server();
    let arguments = ["compat", &server.url(), "--only", "Strings", "--format", "json"];
    let mut command = daemon::command(&Folder::new(), &arguments);
    let mut child = command
        .current_dir("/")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((status(&output), complained(&output)), (GREEN, String::new()));
}

#[test]
fn the_daemon_names_it() {
    assert!(said(&daemon::run(&["--help"])).contains("lockwheel compat redis://"));
    let output = daemon::run(&["compat", "--help"]);
    assert_eq!(status(&output), GREEN);
    assert!(said(&output).contains("Exit status"), "{}", said(&output));
}
