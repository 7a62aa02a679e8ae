//! Compares `lockwheel cli` with the real `redis-cli`: the same bytes on both outputs and the same
//! exit status. Also tests the names under which the program can be started.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use lockwheel::{Reply, Server};
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::left_out;
use lockwheel_tests::process::{end_of, eventually, output_of};
use lockwheel_tests::redis_server::free_port;

const REFUSED: &str = "Could not connect to Redis at ";

/// Options for output formats and protocols.
const OUTPUT_OPTIONS: &[&str] =
    &["", "--no-raw", "--raw", "--json", "-3", "--no-raw -3", "--json -3", "--json -2"];

/// Commands as typed at the prompt, with replies of every type and form.
const COMMANDS: &[&str] = &[
    "ping",
    "echo 'a\"b\\c d'",
    r#"echo "\x00\x01\a\b\t\r\n\xc3\xa9\\\"""#,
    "get nothing",
    "no-such-command a b",
    "rpush list a b c",
    "lrange nothing 0 -1",
    "config get maxmemory*",
    "config get no-such-directive",
    "command info get",
    "client list id 1000000",
    "cluster info",
    "memory doctor",
    "eval 'return {1, {2, {3, \"a\"}}, {}, false}' 0",
    "eval 'return {1, 2, 3, 4, 5, 6, 7, 8, 9, {10, {11}}}' 0",
    "eval 'return redis.error_reply(\"MY own\")' 0",
    "eval 'redis.setresp(3) return {double = 3.25}' 0",
    "eval 'redis.setresp(3) return {map = {a = {map = {b = 1}}}}' 0",
    "eval 'redis.setresp(3) return {map = {a = {1, 2}}}' 0",
    "eval 'redis.setresp(3) return {map = {a = {}}}' 0",
    "eval 'redis.setresp(3) return {set = {x = true}}' 0",
    "eval 'redis.setresp(3) return {{set = {}}, {map = {}}}' 0",
    "eval 'redis.setresp(3) return {true, false}' 0",
    "exec",
    "reset",
    "quit",
];

/// Standard input of runs without a command.
const LINES: &[&str] = &[
    "ping",
    "set k \"a b\"\nget k\n\n   \nno-such-command\n",
    "3 incr n\n0 incr n\n-1 incr n\n12\n",
    "echo \"x\necho 'x' y z\necho \"a\"b\nping\n",
    "multi\nset k v\nincr k\nexec\nselect 3\nget k\nkeys *\n",
    "ping\nQUIT\nping\n",
    "exit\nping\n",
    "select 99\nget k\nconfig get save\n",
];

/// Whether `redis-cli` is installed; if not, notes that a check is left out.
pub(crate) fn redis_cli_exists() -> bool {
    let found = Command::new("redis-cli").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        left_out::without("redis-cli");
    }
    found
}

fn ours() -> Command {
    let mut command = daemon::command(&Folder::new(), &["cli"]);
    command.current_dir(std::env::temp_dir());
    command
}

/// Runs a program with this input until it ends.
pub(crate) fn run(mut command: Command, arguments: &[&str], input: &str) -> Output {
    // The variable may be set in the environment of the tests.
    let is_set = command.get_envs().any(|(name, _)| name == "REDISCLI_AUTH");
    if !is_set {
        command.env_remove("REDISCLI_AUTH");
    }
    command.args(arguments).current_dir(std::env::temp_dir());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut pipe = child.stdin.take().expect("its input is piped");
    // The program may not read its input.
    let _ = pipe.write_all(input.as_bytes());
    drop(pipe);
    output_of(child, "its end")
}

/// The visible results: standard output, standard error, and the exit status.
fn seen(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// Runs both programs, each on its own server, and compares their results. `PORT` in the arguments
/// is replaced by the port of the server; `variable` is the value of `REDISCLI_AUTH`.
#[track_caller]
fn check(settings: &[(&str, &str)], arguments: &[&str], input: &str, variable: Option<&str>) {
    let run_one = |mut command: Command| {
        let builder = settings
            .iter()
            .fold(Server::builder(), |builder, (name, value)| builder.config(name, value));
        let server = builder.start().expect("a server");
        let port = server.addr().port().to_string();
        let arguments: Vec<_> = arguments.iter().map(|word| word.replace("PORT", &port)).collect();
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        command.envs(variable.map(|password| ("REDISCLI_AUTH", password)));
        seen(&run(command, &arguments, input))
    };
    let expected = run_one(Command::new("redis-cli"));
    assert_eq!(run_one(ours()), expected, "{arguments:?} {input:?}");
}

#[test]
fn replies_are_shown_as_by_redis_cli() {
    if !redis_cli_exists() {
        return;
    }
    for output_options in OUTPUT_OPTIONS {
        for command in COMMANDS {
            let words = lockwheel_compat::words::split(command).expect("a command");
            // A zero byte cannot be an argument.
            let words: Option<Vec<_>> = words
                .into_iter()
                .map(|word| String::from_utf8(word).ok().filter(|word| !word.contains('\0')))
                .collect();
            let options = ["-p", "PORT"].into_iter().chain(output_options.split_whitespace());
            match &words {
                Some(words) => {
                    let words = words.iter().map(String::as_str);
                    check(&[], &options.chain(words).collect::<Vec<_>>(), "", None);
                }
                None => check(&[], &options.collect::<Vec<_>>(), command, None),
            }
        }
    }
}

#[test]
fn lines_are_parsed_as_by_redis_cli() {
    if !redis_cli_exists() {
        return;
    }
    for output_option in ["", "--no-raw", "--json", "-e"] {
        for lines in LINES {
            let options = ["-p", "PORT"].into_iter().chain(output_option.split_whitespace());
            check(&[], &options.collect::<Vec<_>>(), lines, None);
        }
    }
}

#[test]
fn options_have_the_meaning_of_redis_cli() {
    if !redis_cli_exists() {
        return;
    }
    let cases: &[(&str, &str)] = &[
        ("-x set k", "a b\n"),
        ("-x echo", "line\nline\n"),
        ("-r 3 incr n", ""),
        ("-r 3 -i 0.01 incr n", ""),
        ("-n 3 client info x", ""),
        ("-n 99 get k", ""),
        ("-n 99", "get k\nget k"),
        ("-n -1 get k", ""),
        ("-e no-such-command", ""),
        ("-e --no-raw no-such-command", ""),
        ("-e ping", ""),
        ("-e", "no-such-command\nping"),
        ("-h 127.0.0.1 ping", ""),
        ("-u redis://127.0.0.1:PORT/2 set k v", ""),
        ("get -h", ""),
        ("--no-such-option", ""),
        ("-p", ""),
        ("-n", ""),
        ("subscribe", ""),
        ("--no-raw subscribe", ""),
        ("shutdown nosave", ""),
        ("shutdown no-such-option", ""),
        ("client kill type normal skipme no", ""),
    ];
    for (options, input) in cases {
        let arguments = ["-p", "PORT"].into_iter().chain(options.split(' '));
        check(&[], &arguments.collect::<Vec<_>>(), input, None);
    }
}

#[test]
fn passwords_are_sent_as_by_redis_cli() {
    if !redis_cli_exists() {
        return;
    }
    let settings = [("requirepass", "a word")];
    let logins: &[&[&str]] = &[
        &[],
        &["-a", "a word"],
        &["-a", "wrong"],
        &["-a", "a word", "--no-auth-warning"],
        &["--pass", "a word", "--no-auth-warning"],
        &["--user", "default", "--pass", "a word"],
        &["--user", "missing", "--pass", "a word"],
        &["-u", "redis://a%20word@127.0.0.1:PORT/1"],
        &["-u", "redis://default:a%20word@127.0.0.1:PORT", "--no-auth-warning"],
    ];
    for login in logins {
        for rest in [&["ping"][..], &["-3", "ping"], &["-e", "ping"], &["-n", "2", "ping"]] {
            check(&settings, &[&["-p", "PORT"], *login, rest].concat(), "", None);
        }
        check(&settings, &[&["-p", "PORT"], *login].concat(), "ping\nping\n", None);
    }
    for word in ["a word", "wrong"] {
        check(&settings, &["-p", "PORT", "ping"], "", Some(word));
        check(&settings, &["-p", "PORT", "-a", "a word", "ping"], "", Some(word));
    }
}

/// `redis-cli` 7.0 sends this as the password of a user with an empty name.
#[test]
fn a_url_may_have_a_password_and_no_user() {
    let server = Server::builder().config("requirepass", "a word").start().expect("a server");
    let url = format!("redis://:a%20word@{}/1", server.addr());
    let output = run(ours(), &["-u", &url, "--no-auth-warning", "set", "k", "v"], "");
    assert_eq!(seen(&output), ("OK\\n".to_owned(), String::new(), Some(0)));
}

#[cfg(target_os = "linux")]
#[test]
fn passwords_are_not_in_the_list_of_processes() {
    let server = Server::builder().config("requirepass", "s3cret").start().expect("a server");
    let (port, uri) =
        (server.addr().port().to_string(), format!("redis://:s3cret@{}", server.addr()));
    let (folder, waits) = (Folder::new(), ["BLPOP", "nothing", "0"]);
    for arguments in [
        ["cli", "-p", &port, "-a", "s3cret"].iter().chain(&waits).collect::<Vec<_>>(),
        ["cli", "-p", &port, "--pass=s3cret"].iter().chain(&waits).collect(),
        ["cli", "-u", &uri].iter().chain(&waits).collect(),
        ["locks", "-p", &port, "-a", "s3cret", "--watch"].iter().collect(),
    ] {
        let words: Vec<&str> = arguments.into_iter().copied().collect();
        let mut command = daemon::command(&folder, &words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program runs");
        eventually("hidden arguments", || {
            let bytes = std::fs::read(format!("/proc/{}/cmdline", child.id())).expect("a process");
            let shown = String::from_utf8_lossy(&bytes);
            shown.contains("lockwheel") && !shown.contains("s3cret")
        });
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}

#[test]
fn refused_connection_is_reported_as_by_redis_cli() {
    let port = free_port().to_string();
    let socket = Folder::new().path("none.sock");
    let nowhere: [&[&str]; 2] = [&["-p", &port], &["-s", &socket]];
    for place in nowhere {
        for (rest, input) in [(&["ping"][..], ""), (&["-e", "ping"], ""), (&[], "ping\nping\n")] {
            let arguments = [place, rest].concat();
            let output = run(ours(), &arguments, input);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.starts_with(REFUSED), "{arguments:?}: {error}");
            if redis_cli_exists() {
                let expected = seen(&run(Command::new("redis-cli"), &arguments, input));
                assert_eq!(seen(&output), expected, "{arguments:?}");
            }
        }
    }
}

#[test]
fn unix_socket_can_be_connected_to() {
    let folder = Folder::new();
    let path = folder.path("redis.sock");
    let server = Server::builder().config("unixsocket", &path).start().expect("a server");
    let output = run(ours(), &["-s", &path, "set", "k", "v"], "");
    assert_eq!(seen(&output), ("OK\\n".to_owned(), String::new(), Some(0)));
    assert_eq!(server.call(&["GET", "k"]).expect("a reply"), Reply::bulk("v"));
}

#[test]
fn messages_are_printed_as_they_arrive() {
    let streams = ["subscribe c", "psubscribe *", "--no-raw subscribe c", "-3 subscribe c"];
    for words in streams.into_iter().chain(["--json psubscribe c*"]) {
        let output = listen(&ours(), words);
        assert!(output.iter().any(|line| line.contains("hello")), "{words}: {output:?}");
        if redis_cli_exists() {
            assert_eq!(output, listen(&Command::new("redis-cli"), words), "{words}");
        }
    }
}

/// The lines of output until a message has arrived. An interrupt must then end the program.
fn listen(program: &Command, words: &str) -> Vec<String> {
    let server = Server::start().expect("a server");
    let port = server.addr().port().to_string();
    // A background process of a shell ignores interrupts, and so do its children.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(program.get_program()).args(program.get_args());
    command.args(["-p", &port]).args(words.split(' '));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut publisher = server.client().expect("a client");
    eventually("the subscription", || {
        publisher.call(&["PUBLISH", "c", "hello"]).expect("a reply") == Reply::Integer(1)
    });
    let output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut lines = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        lines.push(line);
        if lines.last().is_some_and(|line| line.contains("hello")) {
            break;
        }
    }
    let interrupt = ["-INT".to_owned(), child.id().to_string()];
    assert!(Command::new("kill").args(interrupt).status().expect("kill runs").success());
    let status = end_of(&mut child, "its end");
    assert_eq!(status.code(), None, "{words}");
    lines
}

/// A command that runs the program by a link with another name.
fn named(folder: &Folder, name: &str, arguments: &[&str]) -> Command {
    let path = folder.path(name);
    let program = daemon::command(folder, &[""]).get_program().to_owned();
    symlink(program, &path).expect("a link");
    let mut command = Command::new(path);
    command.args(arguments);
    command
}

#[test]
fn name_redis_cli_starts_the_client() {
    let server = Server::start().expect("a server");
    let port = server.addr().port().to_string();
    let pong = ("PONG\\n".to_owned(), String::new(), Some(0));
    for name in ["redis-cli", "valkey-cli"] {
        let folder = Folder::new();
        let command = named(&folder, name, &["-p", &port]);
        assert_eq!(seen(&run(command, &["ping"], "")), pong, "{name}");
        let word = daemon::command(&Folder::new(), &[name, "-p", &port]);
        assert_eq!(seen(&run(word, &["ping"], "")), pong, "{name}");
    }
    let version = run(ours(), &["--version"], "");
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("redis-cli 7."));
}

#[test]
fn name_redis_server_starts_the_server() {
    for name in ["redis-server", "valkey-server"] {
        let folder = Folder::new();
        let command = named(&folder, name, &["--port", "0"]);
        let mut daemon = Daemon::spawn(folder, command, "");
        let port = daemon.wait_for_port();
        assert_eq!(daemon.connect(port).call(&["PING"]), b"+PONG\r\n", "{name}");
    }
    let mut daemon = Daemon::start(&["server", "--port", "0"]);
    let port = daemon.wait_for_port();
    assert_eq!(daemon.connect(port).call(&["PING"]), b"+PONG\r\n");
}

#[test]
fn name_redis_sentinel_starts_a_sentinel_in_the_background_too() {
    for name in ["redis-sentinel", "valkey-sentinel"] {
        let folder = Folder::new();
        let command = named(&folder, name, &["--port", "0"]);
        let mut daemon = Daemon::spawn(folder, command, "");
        daemon.wait_for("Sentinel ID is ");
    }
    let folder = Folder::new();
    let path = folder.path("sentinel.sock");
    let options = ["--port", "0", "--unixsocket", &path, "--daemonize", "yes"];
    let mut command = named(&folder, "redis-sentinel", &options);
    assert!(command.status().expect("it runs").success());
    eventually("its socket", || run(ours(), &["-s", &path, "ping"], "").stdout == b"PONG\n");
    let masters = run(ours(), &["-s", &path, "--no-raw", "sentinel", "masters"], "");
    assert_eq!(seen(&masters).0, "(empty array)\\n");
    run(ours(), &["-s", &path, "shutdown"], "");
    eventually("its end", || run(ours(), &["-s", &path, "ping"], "").stdout.is_empty());
}
