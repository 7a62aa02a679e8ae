//! `lockwheel compat` on the command line: exit status, formats of the report, and that the server
//! is left as it was.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Output, Stdio};

use lockwheel::{Reply, Server};
use lockwheel_compat::properties;
use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::faulty::{FaultyServer, SLOW, faults};
use lockwheel_tests::process::{eventually, output, output_of};
use lockwheel_tests::redis_server::free_port;
use serde_json::Value;

const GREEN: i32 = 0;
const NOT_GREEN: i32 = 1;
const UNUSABLE: i32 = 2;

/// One case that passes, and one with an expectation that no server meets.
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

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The databases that have keys.
fn keyspace(server: &Server) -> String {
    match server.call(&["INFO", "keyspace"]).expect("an answer") {
        Reply::Bulk(bytes) | Reply::Verbatim { text: bytes, .. } => {
            String::from_utf8_lossy(&bytes).into_owned()
        }
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn correct_server_passes_and_keeps_its_data() {
    let server = server();
    server.call(&["SET", "theirs", "value"]).expect("an answer");
    let before = keyspace(&server);
    let output = compat(&server, &["--only", "Strings", "--only", "Functions"]);
    assert_eq!(status(&output), GREEN, "{}", stdout(&output));
    assert!(stdout(&output).contains("\nStrings "), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("No violation found in what was chosen: "),
        "{}",
        stdout(&output)
    );
    assert!(!stdout(&output).contains('\x1b'), "no terminal, no colours");
    assert_eq!(keyspace(&server), before);
    assert_eq!(server.call(&["GET", "theirs"]).expect("an answer"), Reply::bulk("value"));
    assert_eq!(server.call(&["FUNCTION", "LIST"]).expect("an answer"), Reply::Array(vec![]));
}

#[test]
fn failure_report_names_place_request_and_replies() {
    let output = play(&server(), WRONG, &[]);
    assert_eq!(status(&output), NOT_GREEN);
    let text = stdout(&output);
    for expected in [
        "FAILED  Strings: A value is another\n",
        "own.txt:12, RESP2 and RESP3\n",
        "  why it matters  A lock would be lost.\n",
        "  sent            a> GET <k>\n",
        "  expected        \"w\"\n",
        "  came            \"v\"\n",
        "    a> SET k v\n    a< +OK\n    a> GET k\n    a< \"v\"\n",
        "Not green: of 2 tried, 1 failed. It took ",
        "\nNotation: a> SET <k> v is a request of client a",
        "\nFailed cases by cause\n  1 case: another bulk string\n",
        "      a> GET <k>  expected \"w\", came \"v\"\n      Strings: A value is another\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing:\n{text}");
    }
    let verdict = "Can a lock be held twice?          not tried\n";
    assert!(text.starts_with(verdict), "{text}");
}

#[test]
fn many_failures_are_grouped_by_cause() {
    let one = |number: u32| format!("== case {number}\na> GET <k>\na< :1\n\n");
    let cases: String = (1..=11).map(one).collect();
    let cases = format!("family: Strings\nwhy: x\n\n{cases}== last\na> SET <k> v\na< +NO\n");
    let server = server();
    let text = stdout(&play(&server, &cases, &[]));
    let names = "Strings: case 1; Strings: case 2; Strings: case 3";
    let group = format!(
        "nil where Redis sends an integer\n      a> GET <k>  expected :1, came nil\n      {names}\n"
    );
    assert!(text.contains(&format!("\n  11 cases: {group}")), "{text}");
    assert!(text.contains("\n  1 case: another simple string\n"), "{text}");
    assert!(text.contains("\n  --all shows each of the 12 cases.\n"), "{text}");
    assert_eq!(text.matches("FAILED").count(), 0, "{text}");
    let text = stdout(&play(&server, &cases, &["--all"]));
    assert_eq!(text.matches("FAILED").count(), 12, "{text}");
}

#[test]
fn json_report_can_be_parsed() {
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
    assert_eq!(failure["cause"], "another bulk string");
    let causes = serde_json::json!([{
        "cause": "another bulk string",
        "cases": 1,
        "examples": ["Strings: A value is another"],
    }]);
    assert_eq!(report["causes"], causes);
    assert_eq!(report["verdict"][2]["question"], "Can a lock be released by others?");
    assert_eq!(report["verdict"][2]["answer"], "not tried");

    let output = play(&server, WRONG, &["--format", "junit"]);
    let report = quick_junit::Report::deserialize_from_str(&stdout(&output)).expect("JUnit");
    assert_eq!((report.tests, report.failures, report.errors), (2, 1, 0));
    assert!(stdout(&output).contains("type=\"another bulk string\""), "{}", stdout(&output));

    let output = play(&server, WRONG, &["--format", "markdown"]);
    let text = stdout(&output);
    assert!(text.contains("\n\n- Can a lock be held twice? not tried\n"), "{text}");
    assert!(
        text.contains("\n| 1 | another bulk string | Strings: A value is another |\n"),
        "{text}"
    );
    assert!(text.contains("\n| Strings | 1/2 | 1 |  |  |  |\n"), "{text}");
}

#[test]
fn a_report_goes_to_a_file() {
    let folder = Folder::new();
    let path = folder.path("report.xml");
    let output = play(&server(), WRONG, &["--format", "junit", "--output", &path]);
    assert_eq!(status(&output), NOT_GREEN);
    assert!(fs::read_to_string(&path).expect("a file").contains("<testsuites"));
    assert!(stdout(&output).starts_with("Not green: "), "{}", stdout(&output));
}

#[test]
fn missing_command_is_reported_once_and_can_be_allowed() {
    let cases = "family: Strings\nwhy: x\n\n== one\na> FROBNICATE <k>\na< +OK\n\n\
                 == two\na> FROBNICATE <k>\na< +OK\n\n== three\na> PING\na< +PONG\n";
    let server = server();
    let output = play(&server, cases, &[]);
    assert_eq!(status(&output), NOT_GREEN);
    assert_eq!(stdout(&output).matches("FROBNICATE").count(), 1, "{}", stdout(&output));
    assert!(stdout(&output).contains("   2 cases need it\n"), "{}", stdout(&output));
    let output = play(&server, cases, &["--allow-missing"]);
    assert_eq!(status(&output), GREEN, "{}", stdout(&output));
}

#[test]
fn list_names_cases_and_properties() {
    let output = daemon::run(&["compat", "--list", "--only", "set nx refuses"]);
    assert_eq!(status(&output), GREEN);
    assert!(stdout(&output).starts_with("Strings\n  SET NX refuses"), "{}", stdout(&output));
    let output = daemon::run(&["compat", "--list", "--format", "json"]);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cases = list["cases"].as_array().expect("cases");
    assert!(cases.iter().any(|case| case["client"] == "Redisson RLock"));
    assert!(cases.iter().any(|case| case["family"] == "Properties under contention"));
}

#[test]
fn recording_leaves_other_keys_alone() {
    let server = server();
    server.call(&["SET", "theirs:<k>:", "value"]).expect("an answer");
    let output =
        play(&server, "family: x\nwhy: x\n\n== one\na> SET <k> v\na> KEYS *<k>\n", &["--record"]);
    assert_eq!(status(&output), GREEN, "{}", stderr(&output));
    let recorded = "== one\na> SET <k> v\na< +OK\na> KEYS *<k>\na< [\"<k>\"]\n\n";
    assert_eq!(stdout(&output), recorded);
    assert_eq!(
        server.call(&["KEYS", "*"]).expect("an answer"),
        Reply::Array(vec![Reply::bulk("theirs:<k>:")])
    );
}

#[test]
fn unusable_arguments_are_explained() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    for (arguments, complaint) in [
        (&["compat", &url][..], "Connection refused (os error 111): start the server"),
        (&["compat"], "required"),
        (&["compat", "http://localhost"], "write redis://, rediss:// or unix://"),
        (&["compat", &url, "--only", "no such thing"], "nothing is called no such thing"),
        (&["compat", &url, "--cases", "/nowhere"], "/nowhere: No such file"),
        (&["compat", &url, "--reply-timeout", "0s"], "not positive"),
        (&["compat", &url, "--reply-timeout", "10"], "milliseconds with a unit, such as 250ms"),
        (&["compat", &url, "--time-limit", "1 day"], "milliseconds with a unit, such as 250ms"),
        (&["compat", &url, "--time-limit", "0s"], "not positive"),
        (&["compat", &url, "--quick", "--cases", "own.txt"], "cannot be used with"),
    ] {
        let output = daemon::run(arguments);
        assert_eq!(status(&output), UNUSABLE, "{arguments:?}");
        assert!(stderr(&output).contains(complaint), "{}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

/// A server that refuses the suite is explained on one line, with what to do.
#[test]
fn refusals_of_a_server_are_explained() {
    let server = server();
    let rights = ["~app:* &* +@all", "~* &* +@read +info +select +dbsize"];
    for (user, rights) in ["keys", "reader"].into_iter().zip(rights) {
        let words = format!("ACL SETUSER {user} on >x {rights}");
        let reply = server.call(&words.split(' ').collect::<Vec<_>>()).expect("an answer");
        assert_eq!(reply, Reply::OK);
    }
    let certificates = Certificates::new();
    let with_tls = certificates.server().start().expect("a server");
    let (plain, tls) = (server.addr(), with_tls.addr());
    for (url, problem, advice) in [
        (format!("redis://keys:x@{plain}"), "NOPERM", "ACL SETUSER name ~* &* +@all"),
        (format!("redis://reader:x@{plain}"), "NOPERM", "ACL SETUSER name ~* &* +@all"),
        (format!("redis://reader:y@{plain}"), "WRONGPASS", "correct the user and the password"),
        (protected_server(), "DENIED", "connect from the server's machine"),
        (format!("rediss://{plain}"), "no TLS connection", "write redis:// if"),
        (format!("redis://{tls}"), "before its first reply", "write rediss:// if"),
    ] {
        let mut words = vec!["compat", &url, "--only", "SET NX refuses an existing key"];
        words.extend(url.starts_with("rediss").then_some("--insecure"));
        let output = daemon::run(&words);
        let text = stderr(&output);
        assert_eq!((status(&output), stdout(&output)), (UNUSABLE, String::new()), "{text}");
        let is_explained = text.contains(problem) && text.contains(advice);
        assert!(is_explained && text.lines().count() == 1, "{url}: {text}");
    }
}

/// The URL of a server in protected mode.
fn protected_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"-DENIED The server is in protected mode. In this mode\r\n");
            // Until the suite closes the connection.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    url
}

#[test]
fn password_is_that_of_the_url_or_of_the_environment() {
    let server = Server::builder().config("requirepass", "secret").start().expect("a server");
    let run = |login: &str, variable: Option<&str>| {
        let url = format!("redis://{login}{}", server.addr());
        let words = ["compat", &url, "--only", "SET NX refuses an existing key"];
        let folder = Folder::new();
        let mut command = daemon::command(&folder, &words);
        command.env_remove("REDISCLI_AUTH");
        command.envs(variable.map(|password| ("REDISCLI_AUTH", password)));
        let output = output(&mut command).expect("the program runs");
        (status(&output), stderr(&output))
    };
    let (code, text) = run("", None);
    assert_eq!(code, UNUSABLE, "{text}");
    assert!(text.contains("write redis://:password@host:port, or set REDISCLI_AUTH"), "{text}");
    assert_eq!(run("", Some("")).0, UNUSABLE);
    let (code, text) = run("", Some("wrong"));
    assert!(code == UNUSABLE && text.contains("WRONGPASS"), "{text}");
    assert_eq!(run("", Some("secret")), (GREEN, String::new()));
    assert_eq!(run(":secret@", Some("wrong")), (GREEN, String::new()));
}

#[test]
fn shared_state_is_restored_when_a_case_fails() {
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
    assert_eq!(report["totals"]["failed"], 3, "{}", stdout(&output));
    assert_eq!(report["notices"], Value::Array(vec![]));
    assert_eq!(server.call(&["FUNCTION", "LIST"]).expect("an answer"), Reply::Array(vec![]));
    assert!(!keyspace(&server).contains("keys="), "{}", keyspace(&server));
    server.call(&["SET", "k", "no client is paused"]).expect("an answer");
}

#[test]
fn dead_server_is_reported_once() {
    // Uses a port that no other program gets when the server has ended.
    let mut daemon = Daemon::start(&["--port", &free_port().to_string()]);
    let url = format!("redis://127.0.0.1:{}", daemon.wait_for_port());
    let folder = Folder::new();
    let path = folder.path("own.txt");
    let cases = "family: Server\nwhy: x\n\n== one\na> SHUTDOWN NOSAVE\na< +OK\n\n\
                 == two\na> PING\na< +PONG\n\n== three\na> PING\na< +PONG\n";
    fs::write(&path, cases).expect("a file");
    let output = daemon::run(&["compat", &url, "--cases", &path, "--jobs", "1"]);
    assert_eq!(status(&output), NOT_GREEN);
    let text = stdout(&output);
    assert!(text.contains("gives no valid reply (Connection refused"), "{text}");
    assert!(text.contains("since \"Server: one\" was tried"), "{text}");
    assert!(text.contains("\nNot reached:\n  Server: two\n  Server: three\n"), "{text}");
}

#[test]
fn time_limit_ends_the_run_and_names_what_was_not_reached() {
    let server = server();
    let cases = "family: Strings\nwhy: x\n\n== one\na> SET <k> v\na< +OK\n+10m\n\n\
                 == two\na> PING\na< +PONG\n";
    let output = play(&server, cases, &["--jobs", "1", "--time-limit", "3s"]);
    assert_eq!(status(&output), NOT_GREEN);
    let text = stdout(&output);
    assert!(text.contains("\nNot green: "), "{text}");
    assert!(text.contains("the time limit of 3s is over. Not reached: "), "{text}");
    assert!(text.contains("\nNot reached:\n"), "{text}");
    assert!(text.contains("\n  Strings: two\n"), "{text}");
    assert!(!keyspace(&server).contains("keys="), "{}", keyspace(&server));
}

#[test]
fn server_that_never_replies_ends_the_run() {
    // The system accepts connections.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", silent.local_addr().expect("an address"));
    let output = daemon::run(&["compat", &url, "--time-limit", "2s", "--all"]);
    assert_eq!(status(&output), NOT_GREEN, "{}", stderr(&output));
    let text = stdout(&output);
    let ending = format!("{url} gives no valid reply: nothing in time");
    assert!(text.starts_with("Can a lock be held twice?          unknown: "), "{text}");
    assert!(text.contains("\nNot green: of 0 tried"), "{text}");
    assert!(text.contains(&ending), "{text}");
    assert!(text.contains("\n  Strings: SET NX refuses an existing key\n"), "{text}");
    let output = daemon::run(&["compat", &url, "--time-limit", "2s", "--only", "Strings: "]);
    assert!(stdout(&output).contains(" more: --all names them\n"), "{}", stdout(&output));
}

#[test]
fn server_that_sends_garbage_ends_the_run() {
    let garbage = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", garbage.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in garbage.incoming().map_while(Result::ok) {
            // The suite may have closed the connection.
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
    });
    let output = daemon::run(&["compat", &url, "--time-limit", "60s", "--format", "junit"]);
    assert_eq!(status(&output), NOT_GREEN, "{}", stderr(&output));
    let text = stdout(&output);
    let report = quick_junit::Report::deserialize_from_str(&text).expect("JUnit");
    assert_eq!((report.failures, report.errors), (0, 1), "{text}");
    assert!(text.contains("gives no valid reply: not a reply: HTTP/1.1 400 Bad Request"), "{text}");
}

/// Some servers close the connection at `HELLO`: they are checked in RESP2.
#[test]
fn server_that_closes_the_connection_at_hello_is_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || reply_until_hello(stream));
        }
    });
    let folder = Folder::new();
    let path = folder.path("own.txt");
    fs::write(&path, "family: Server\nwhy: x\n\n== one\na> PING\na< +PONG\n").expect("a file");
    let output = daemon::run(&["compat", &url, "--cases", &path]);
    assert_eq!(status(&output), GREEN, "{}", stdout(&output));
    assert!(stdout(&output).contains("RESP3 is not spoken"), "{}", stdout(&output));
}

/// Replies to the few commands that a run needs, and closes the connection at `HELLO`.
fn reply_until_hello(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
    while let Some(Ok(line)) = lines.next() {
        let reply = match line.as_str() {
            "HELLO" => return,
            "PING" => "+PONG\r\n",
            "SELECT" | "SET" | "DEL" | "EVAL" | "PUBLISH" => "+OK\r\n",
            "DBSIZE" => ":0\r\n",
            "INFO" => "-ERR unknown command\r\n",
            "SCAN" => "*2\r\n$1\r\n0\r\n*0\r\n",
            _ => continue,
        };
        // The suite may have closed the connection.
        let _ = stream.write_all(reply.as_bytes());
    }
}

#[test]
fn slow_server_ends_the_run_at_the_time_limit() {
    let server = FaultyServer::start(Some(&SLOW)).expect("a server");
    let options = ["--time-limit", "5s", "--format", "json"];
    let output = daemon::run(&[&["compat", &server.url()], &options[..]].concat());
    assert_eq!(status(&output), NOT_GREEN, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ending = report["ending"].as_str().expect("a reason");
    assert!(ending.contains("the time limit of 5s is over"), "{ending}");
    assert_eq!(report["time_limit_ms"], 5000);
    let properties = properties::all().count();
    assert_eq!(report["not_reached"]["properties"], properties);
    let cases = report["cases"].as_array().expect("cases");
    let property = cases.last().expect("a property");
    assert_eq!(property["verdict"], "skipped");
    assert_eq!(property["reason"], format!("not reached: {ending}"));
}

/// A quick run begins with the properties, and does not reach all cases of a slow server.
#[test]
fn quick_run_of_a_slow_server_begins_with_the_properties() {
    let server = FaultyServer::start(Some(&SLOW)).expect("a server");
    let options = ["--quick", "--time-limit", "5s", "--format", "json"];
    let output = daemon::run(&[&["compat", &server.url()], &options[..]].concat());
    assert_eq!(status(&output), NOT_GREEN, "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ending = report["ending"].as_str().expect("a reason");
    assert!(ending.contains("the time limit of 5s is over"), "{ending}");
    assert!(report["not_reached"]["cases"].as_u64() > Some(0), "{}", report["not_reached"]);
    let cases = report["cases"].as_array().expect("cases");
    let mut properties = cases.iter().filter(|it| it["family"] == "Properties under contention");
    let first = properties.next().expect("a property");
    assert_eq!(first["verdict"], "unknown", "{first}");
}

#[test]
fn quick_run_chooses_cases_and_properties() {
    let list = |options: &[&str]| {
        let output = daemon::run(&[&["compat", "--list", "--format", "json"], options].concat());
        let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        list["cases"].as_array().expect("cases").clone()
    };
    let (all, quick) = (list(&[]), list(&["--quick"]));
    assert!(quick.len() < all.len());
    let properties = |list: &[Value]| {
        list.iter().filter(|it| it["family"] == "Properties under contention").count()
    };
    assert!((1..properties(&all)).contains(&properties(&quick)));
    assert!(quick.iter().any(|case| case["name"] == "SET NX refuses an existing key"));
    let server = server();
    let options = ["--quick", "--only", "SET NX refuses", "--format", "json"];
    let output = compat(&server, &options);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status(&output), GREEN, "{report}");
    assert_eq!(report["time_limit_ms"], 10_000);
    assert_eq!((&report["quick"], &report["ending"]), (&Value::from(true), &Value::Null));
}

#[test]
fn property_that_the_reference_breaks_is_noted() {
    let name = "Every repetition of a lock command gets the right reply";
    let find = |name: &str| faults().into_iter().find(|fault| fault.name == name);
    let wrong = FaultyServer::start(find("get-misses-some")).expect("a server");
    let right = FaultyServer::start(None).expect("a server");
    let against = |target: &FaultyServer, reference: &FaultyServer| {
        let url = reference.url();
        let options = ["--reference", &url, "--only", name, "--format", "json"];
        let output = daemon::run(&[&["compat", &target.url()], &options[..]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (status(&output), report)
    };
    let (code, report) = against(&right, &wrong);
    assert_eq!(code, GREEN, "{report}");
    assert_eq!(report["notices"][0], format!("the reference breaks \"{name}\""));
    let (code, report) = against(&wrong, &right);
    assert_eq!(code, NOT_GREEN, "{report}");
    assert_eq!(report["cases"][0]["failures"][0]["reference"], "keeps the rule");
    assert_eq!(report["verdict"][0]["answer"], format!("violation found: {name}"));
}

#[test]
fn interrupted_run_cleans_up_and_reports() {
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
    let output = output_of(child, "its end");
    assert_eq!(status(&output), NOT_GREEN, "{}", stderr(&output));
    let ending = "The run did not complete: interrupted.";
    assert!(stdout(&output).contains(ending), "{}", stdout(&output));
    assert!(!keyspace(&server).contains("keys="), "{}", keyspace(&server));
}

#[test]
fn closed_output_does_not_stop_the_clean_up() {
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
    let output = output_of(child, "its end");
    assert_eq!((status(&output), stderr(&output)), (GREEN, String::new()));
}

#[test]
fn help_of_the_server_names_the_command() {
    assert!(stdout(&daemon::run(&["--help"])).contains("\n  compat redis://"));
    let output = daemon::run(&["compat", "--help"]);
    assert_eq!(status(&output), GREEN);
    assert!(stdout(&output).contains("Exit status"), "{}", stdout(&output));
}
