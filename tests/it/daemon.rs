//! The daemon behaves as launchers and process managers expect of a `redis-server`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use lockwheel_compat::time;
use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::daemon::{Daemon, Folder, command, command_of, program, run};
use lockwheel_tests::process::{end_of, eventually, is_stopped, output, resident_bytes_of};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::{Wire, open_unix, read_to_end};

/// Sends one inline request through a unix socket and returns the reply.
fn ask(path: &str, request: &str) -> String {
    let mut stream = open_unix(path);
    stream.write_all(format!("{request}\r\n").as_bytes()).expect("it is taken");
    let mut reply = [0; 64];
    let length = stream.read(&mut reply).expect("a reply");
    String::from_utf8_lossy(&reply[..length]).into_owned()
}

fn check_ping(daemon: &Daemon, port: u16) {
    assert_eq!(daemon.connect(port).call(&["PING"]), b"+PONG\r\n");
}

/// Launchers search for the ready line of Redis 3 or for a later one; some count the lines.
#[test]
fn ready_line_is_logged_once_in_old_and_new_wording() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let line = daemon.wait_for("* Ready to accept connections");
    let port = line.strip_prefix("tcp: The server is now ready to accept connections on port ");
    check_ping(&daemon, port.expect("the old wording").parse().expect("a port"));
    daemon.signal("TERM");
    daemon.end();
    assert_eq!(daemon.log_text.to_lowercase().matches("* ready to accept").count(), 1);
}

#[test]
fn options_are_accepted_in_every_form_of_launchers() {
    // One element for an option and its value, values that are empty, an option at the end.
    let cases: [&[&str]; 6] = [
        &["--port PORT"],
        &["--port PORT", "--save", ""],
        &["--appendonly no", "--port", "PORT", "--save"],
        &["--save 1 1 ", "--port", "PORT"],
        &["--save", "900 1 300 10", "--rdbcompression", "yes", "--port", "PORT"],
        &["--port", "PORT", "--bind", "127.0.0.1", "--daemonize", "no", "--loglevel", "verbose"],
    ];
    for arguments in cases {
        let port = free_port();
        let arguments = arguments.iter().map(|text| text.replace("PORT", &port.to_string()));
        let arguments: Vec<String> = arguments.collect();
        let mut daemon = Daemon::start(&arguments);
        assert_eq!(daemon.wait_for_port(), port, "{arguments:?}");
        check_ping(&daemon, port);
    }
}

/// Launchers often request snapshots, so the server starts nevertheless.
#[test]
fn save_points_without_log_warn_at_start_and_are_refused_later() {
    let mut daemon = Daemon::start(&["--port", "0", "--save", "900", "1"]);
    assert_eq!(
        daemon.wait_for("# save: "),
        "nothing is written to disk without 'appendonly yes': all keys and locks are lost when the \
         server ends"
    );
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    let is_not_durable = |wire: &mut Wire| {
        assert_eq!(wire.call(&["CONFIG", "GET", "save"]), b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
        let info = String::from_utf8_lossy(&wire.call(&["INFO", "persistence"])).into_owned();
        assert!(info.contains("\r\naof_enabled:0\r\n"), "{info}");
    };
    is_not_durable(&mut wire);
    for (name, on, off, reason) in [
        ("appendonly", "yes", "no", "can be set only when the server starts"),
        ("save", "60 1", "", "snapshots belong to the log: start the server with 'appendonly yes'"),
    ] {
        let refusal = format!(
            "-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}\r\n"
        );
        assert_eq!(wire.call(&["CONFIG", "SET", name, on]), refusal.as_bytes());
        assert_eq!(wire.call(&["CONFIG", "SET", name, off]), b"+OK\r\n");
        is_not_durable(&mut wire);
    }
    let mut daemon = Daemon::start(&["--port", "0", "--save", "", "--appendonly", "no"]);
    daemon.wait_for_port();
    assert!(!daemon.log_text.contains(" # "), "{}", daemon.log_text);
}

/// The command line, which every user of the machine can read.
#[cfg(target_os = "linux")]
fn command_line(process_id: u32) -> String {
    let bytes = fs::read(format!("/proc/{process_id}/cmdline")).expect("a command line");
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

#[cfg(target_os = "linux")]
#[test]
fn passwords_are_not_in_the_process_list() {
    let cases: [&[&str]; 5] = [
        &["--requirepass", "s3cret"],
        &["--requirepass s3cret"],
        &["--RequirePass", "s3cret", "--cluster-enabled", "yes"],
        &["--masterauth", "s3cret", "--bind", "127.0.0.1"],
        &["--sentinel monitor m 127.0.0.1 1 1", "--sentinel auth-pass m s3cret", "--sentinel"],
    ];
    for arguments in cases {
        let arguments = [&["--port", "0"], arguments].concat();
        let mut daemon = Daemon::start(&arguments);
        let port = daemon.wait_for_port();
        let title = || command_line(daemon.process_id());
        eventually("a title", || title().contains(&format!(" 127.0.0.1:{port}")));
        assert!(!title().contains("s3cret"), "{arguments:?}: {}", title());
        let program = lockwheel_tests::daemon::program().to_string_lossy();
        assert!(title().starts_with(&*program), "{arguments:?}: {}", title());
    }
}

#[test]
fn configuration_is_read_from_a_file_or_standard_input() {
    let text = "# a remark\nport 0\nrequirepass \"a secret\"\n";
    let folder = Folder::new();
    let file = folder.path("redis.conf");
    fs::write(&file, text).expect("a file");
    let from_file = Daemon::start_in(folder, &[&file], "");
    let from_input = Daemon::start_in(Folder::new(), &["-"], text);
    for mut daemon in [from_file, from_input] {
        let port = daemon.wait_for_port();
        let mut wire = daemon.connect(port);
        assert_eq!(wire.call(&["PING"]), b"-NOAUTH Authentication required.\r\n");
        assert_eq!(wire.call(&["AUTH", "a secret"]), b"+OK\r\n");
    }
}

#[test]
fn server_can_listen_on_a_unix_socket_only() {
    let folder = Folder::new();
    let path = folder.path("redis.sock");
    let mut daemon = Daemon::start_in(folder, &["--port", "0", "--unixsocket", &path], "");
    let ready = daemon.wait_for("* Ready to accept connections");
    let at = ready.strip_prefix("unix: The server is now ready to accept connections at ");
    assert_eq!(at, Some(path.as_str()));
    assert!(!daemon.log_text.contains("on port"), "{}", daemon.log_text);
    assert_eq!(ask(&path, "PING"), "+PONG\r\n");
    daemon.signal("TERM");
    assert!(daemon.end().success());
    assert!(!Path::new(&path).exists());
}

#[test]
fn server_ends_with_its_standard_input_if_configured() {
    let folder = Folder::new();
    let mut command = command(&folder, &["--port", "0", "--end-with-stdin", "yes"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let input = child.stdin.take().expect("a pipe");
    let log = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = log.lines().map(|line| line.expect("text"));
    let ready = "The server is now ready to accept connections on port ";
    let port = lines.find_map(|line| Some(line.split_once(ready)?.1.to_owned())).expect("a port");
    let mut wire = Wire::connect(format!("127.0.0.1:{port}").parse().expect("an address"), 2);
    assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
    drop(input);
    assert_eq!(wire.read_to_close(), b"");
    assert!(lines.any(|line| line.contains("Received the end of standard input")));
    assert!(end_of(&mut child, "its end").success());
}

#[test]
fn signals_shut_the_server_down() {
    for signal in ["INT", "TERM"] {
        let folder = Folder::new();
        let pidfile = folder.path("redis.pid");
        let arguments = ["--port", "0", "--pidfile", &pidfile];
        let mut daemon = Daemon::start_in(folder, &arguments, "");
        let port = daemon.wait_for_port();
        let mut wire = daemon.connect(port);
        assert_eq!(wire.call(&["SET", "k", "v"]), b"+OK\r\n");
        let written = fs::read_to_string(&pidfile).expect("a pidfile");
        assert_eq!(written.trim(), daemon.process_id().to_string());
        // The server continues after the end of its terminal.
        daemon.signal("HUP");
        assert_eq!(wire.call(&["GET", "k"]), b"$1\r\nv\r\n");
        daemon.signal(signal);
        assert_eq!(wire.read_to_close(), b"");
        // Another server may be started as soon as the end is visible.
        assert!(!Path::new(&pidfile).exists());
        assert_eq!(daemon.end().code(), Some(0));
        let words = [
            &format!("Received SIG{signal} scheduling shutdown..."),
            "User requested shutdown...",
            "is now ready to exit, bye bye...",
        ];
        for words in words {
            assert!(daemon.log_text.contains(words), "{}", daemon.log_text);
        }
    }
}

#[test]
fn server_that_fails_to_start_keeps_the_pidfile_of_the_running_one() {
    let folder = Folder::new();
    let pidfile = folder.path("redis.pid");
    let arguments = ["--port", "0", "--pidfile", &pidfile];
    let mut daemon = Daemon::start_in(folder, &arguments, "");
    let port = daemon.wait_for_port().to_string();
    let second = run(&["--port", &port, "--pidfile", &pidfile]);
    assert_eq!(second.status.code(), Some(1));
    let written = fs::read_to_string(&pidfile).expect("a pidfile");
    assert_eq!(written.trim(), daemon.process_id().to_string());
}

#[test]
fn signal_ends_the_server_during_a_script() {
    let mut daemon = Daemon::start(&["--port", "0", "--busy-reply-threshold", "1"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    wire.send(&["EVAL", "redis.call('set', 'k', 'v') while true do end", "0"]);
    let mut other = daemon.connect(port);
    eventually("the script to keep others waiting", || {
        other.call(&["PING"]).starts_with(b"-BUSY ")
    });
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0));
}

/// As after a suspended machine: events that became due meanwhile happen first, in order.
#[test]
fn leases_end_during_a_pause_of_the_process() {
    let mut daemon = Daemon::start(&["--port", "0", "--notify-keyspace-events", "Ex"]);
    let port = daemon.wait_for_port();
    let (mut listener, mut wire) = (daemon.connect(port), daemon.connect(port));
    listener.call(&["SUBSCRIBE", "__keyevent@0__:expired"]);
    // Set at one moment, so that only the leases decide which ends first.
    let script = "for at, lock in ipairs(KEYS) do \
        redis.call('set', lock, 'token', 'PX', ARGV[at]) end";
    let locks = ["EVAL", script, "3", "third", "first", "second", "160", "120", "140"];
    assert_eq!(wire.call(&locks), b"$-1\r\n");
    let set_us = time::now_us();
    daemon.signal("STOP");
    eventually("it to stand still", || is_stopped(daemon.process_id()));
    wire.send(&["GET", "third"]);
    // Waits for longer than the longest lease. The server is stopped, but its clock goes on.
    eventually("the leases to end", || time::now_us() > set_us + 161_000);
    daemon.signal("CONT");
    assert_eq!(wire.read(), b"$-1\r\n");
    for lock in ["first", "second", "third"] {
        let message = String::from_utf8_lossy(&listener.read()).into_owned();
        assert!(message.contains(lock), "{lock}: {message}");
    }
}

#[test]
fn maxclients_is_limited_by_descriptors() {
    let folder = Folder::new();
    let mut shell = Command::new("sh");
    let server = command(&folder, &["--port", "0", "--maxclients", "1000"]);
    shell.args(["-c", "ulimit -n 40; exec \"$@\"", "sh"]).arg(server.get_program());
    shell.args(server.get_args());
    let mut daemon = Daemon::spawn(folder, shell, "");
    let port = daemon.wait_for_port();
    assert!(daemon.log_text.contains("maxclients is 8 instead of 1000"), "{}", daemon.log_text);
    let mut wires: Vec<_> = (0..8).map(|_| daemon.connect(port)).collect();
    for wire in &mut wires {
        assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
    }
    let refusal = daemon.connect(port).read_to_close();
    assert_eq!(refusal, b"-ERR max number of clients reached\r\n");
    let refused = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The \
        operating system is not able to handle the specified number of clients, try with 8\r\n";
    assert_eq!(wires[0].ask("CONFIG SET maxclients 9"), refused);
    assert_eq!(wires[0].ask("CONFIG SET maxclients 8"), "+OK\r\n");
}

/// Connections of every kind leave the descriptors that the log needs.
#[test]
fn log_is_written_while_all_connections_are_in_use() {
    const LIMIT: usize = 400;
    let certificates = Certificates::new();
    let (folder, admin_port, tls_port) = (Folder::new(), free_port(), free_port());
    let mut arguments = certificates.options(tls_port);
    arguments.extend(["--tls-auth-clients", "no", "--appendonly", "yes"].map(String::from));
    arguments.extend(["--io-threads", "8", "--dir", &folder.path("")].map(String::from));
    arguments.extend(["--admin-port", &admin_port.to_string()].map(String::from));
    let port = free_port().to_string();
    let server = command(&folder, &arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {LIMIT}; exec \"$@\""), "sh"]);
    shell.arg(server.get_program()).args(server.get_args()).args(["--port", &port]);
    let mut daemon = Daemon::spawn(folder, shell, "");
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    assert_eq!(wire.ask("SET lock token PX 100000"), "+OK\r\n");
    let connect = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a backlog");
    let mut idle: Vec<TcpStream> = Vec::new();
    for port in [admin_port, tls_port, port] {
        idle.extend((0..LIMIT).map(|_| connect(port)));
    }
    let refusal = daemon.connect(port).read_to_close();
    assert_eq!(refusal, b"-ERR max number of clients reached\r\n");
    for number in 0..3 {
        assert_eq!(wire.ask(&format!("SET lock {number} XX PX 1{number}0000000")), "+OK\r\n");
        assert_eq!(wire.ask("SAVE"), "+OK\r\n");
    }
    drop(idle);
    daemon.signal("TERM");
    assert!(daemon.end().success(), "{}", daemon.log_text);
}

#[test]
fn shutdown_command_ends_the_server() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    wire.send(&["SHUTDOWN", "NOSAVE"]);
    assert_eq!(wire.read_to_close(), b"");
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn unknown_arguments_are_refused() {
    let cases: [&[&str]; 3] =
        [&["--no-such-option", "1"], &["--port", "many"], &["no-such-file.conf"]];
    for arguments in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = match arguments.len() {
            1 => "Fatal error, can't open config file",
            _ => "*** FATAL CONFIG FILE ERROR",
        };
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

/// redis-memory-server searches the log for these words, to try another port.
#[test]
fn a_port_that_is_taken_is_named_in_the_log() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let output = run(&["--port", &port, "--bind", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stdout).to_lowercase();
    assert!(log.contains("address already in use"), "{log}");
    assert!(log.contains(&format!("127.0.0.1:{port}")), "{log}");
}

#[test]
fn sentinel_reports_itself_and_its_master() {
    let folder = Folder::new();
    let conf = folder.path("sentinel.conf");
    let text = "port 0\nrequirepass secret\nsentinel monitor mymaster 127.0.0.1 7000 2\n\
                sentinel down-after-milliseconds mymaster 5000\n";
    fs::write(&conf, text).expect("a file");
    let mut daemon = Daemon::start_in(folder, &[&conf, "--sentinel"], "");
    let id = daemon.wait_for("Sentinel ID is ");
    assert_eq!(daemon.wait_for("+monitor master "), "mymaster 127.0.0.1 7000 quorum 2");
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    wire.call(&["AUTH", "secret"]);
    assert_eq!(wire.call(&["SENTINEL", "MYID"]), format!("$40\r\n{id}\r\n").as_bytes());
    let address = wire.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
    assert_eq!(address, b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n7000\r\n");
}

#[test]
fn cluster_node_reports_its_own_address() {
    let mut daemon = Daemon::start(&["--port", "0", "--cluster-enabled", "yes"]);
    daemon.wait_for("Running mode=cluster, port=");
    let port = daemon.wait_for_port();
    let nodes = daemon.connect(port).call(&["CLUSTER", "NODES"]);
    let nodes = String::from_utf8_lossy(&nodes).into_owned();
    assert!(nodes.contains(&format!(" 127.0.0.1:{port}@")), "{nodes}");
}

#[test]
fn version_is_printed() {
    for flag in ["--version", "-v"] {
        let output = run(&[flag]);
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stdout);
        let (_, version) = said.split_once(" v=").expect("a version");
        let version = version.split(' ').next().unwrap_or_default();
        let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
        assert!(parts.len() == 3 && parts[0] >= 7, "{said}");
        // Some launchers take the first number with a dot.
        let first = said.find(|character: char| character.is_ascii_digit());
        assert_eq!(first, said.find(version), "{said}");
    }
}

/// Some launchers close the pipe as soon as they have read the ready line.
#[test]
fn server_continues_when_its_log_is_closed() {
    let mut daemon = Daemon::start(&["--port", "0", "--loglevel", "debug"]);
    let port = daemon.wait_for_port();
    daemon.close_log();
    for _ in 0..100 {
        check_ping(&daemon, port);
        daemon.connect(port).send_bytes(b"POST / HTTP/1.1\r\n");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.end_without_reading().code(), Some(0));
}

/// Other launchers keep the pipe open and never read, so that it becomes full.
#[test]
fn server_continues_when_its_log_pipe_is_full() {
    const PIPE_BYTES: usize = 64 << 10;
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let line = "x".repeat(1_000);
    let script = format!("for _ = 1, 100 do redis.log(redis.LOG_WARNING, '{line}') end");
    let mut wire = daemon.connect(port);
    for _ in 0..10 * PIPE_BYTES / (100 * line.len()) + 1 {
        assert_eq!(wire.call(&["EVAL", &script, "0"]), b"$-1\r\n");
    }
    check_ping(&daemon, port);
    daemon.signal("INT");
    assert_eq!(daemon.end_without_reading().code(), Some(0));
}

#[test]
fn text_of_a_client_begins_no_line_of_the_log() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let script = r"redis.log(redis.LOG_WARNING, 'one\n1:M # two\r\tthree\27[2J')";
    assert_eq!(daemon.connect(port).call(&["EVAL", script, "0"]), b"$-1\r\n");
    assert_eq!(daemon.wait_for(" # "), r"one\n1:M # two\r\tthree\x1b[2J");
}

/// Whatever the umask permits.
#[test]
fn files_with_values_of_keys_are_for_the_user_of_the_server_only() {
    let folder = Folder::new();
    let (path, output) = (folder.path("redis.sock"), folder.path("exported"));
    let without_umask = |folder: &Folder, arguments: &[&str]| {
        let mut shell = command_of("sh", folder);
        shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(program()).args(arguments);
        shell
    };
    let options = ["--port 0", "--appendonly yes", "--logfile log", "--pidfile pid"];
    let command = without_umask(&folder, &[&options[..], &["--unixsocket", &path]].concat());
    let mut daemon = Daemon::spawn(folder, command, "");
    eventually("its socket", || UnixStream::connect(&path).is_ok());
    eventually("a key", || ask(&path, "SET key value") == "+OK\r\n");
    assert_eq!(ask(&path, "SAVE"), "+OK\r\n");
    let mode = |path: &Path| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    let log = daemon.folder.path("appendonlydir");
    assert_eq!(mode(Path::new(&log)), 0o700);
    for entry in fs::read_dir(&log).expect("a folder") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
    }
    for name in ["log", "pid"] {
        assert_eq!(mode(Path::new(&daemon.folder.path(name))), 0o644, "{name}");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0));
    let export = ["log", "export", "--format", "json", "--output", &output, &log];
    let status = without_umask(&daemon.folder, &export).status().expect("it runs");
    assert!(status.success());
    assert_eq!(mode(Path::new(&output)), 0o600);
}

/// A link could name any file that the server may write to.
#[test]
fn pidfile_is_a_regular_file() {
    let folder = Folder::new();
    fs::write(folder.path("other"), "text").expect("a file");
    symlink(folder.path("other"), folder.path("link")).expect("a link");
    for name in ["link", "/dev/null"] {
        let mut command = command(&folder, &["--port", "0", "--pidfile", name]);
        let ended = output(&mut command).expect("the program runs");
        assert_eq!(ended.status.code(), Some(1), "{name}");
        let text = String::from_utf8_lossy(&ended.stdout);
        assert!(text.contains(&format!("cannot write the pidfile {name}: ")), "{text}");
    }
    assert_eq!(fs::read_to_string(folder.path("other")).expect("a file"), "text");
}

#[test]
fn daemonize_starts_the_server_in_the_background() {
    let folder = Folder::new();
    let (path, pidfile) = (folder.path("redis.sock"), folder.path("redis.pid"));
    let file = folder.path("redis.conf");
    let text = format!("port 0\ndaemonize yes\nunixsocket {path}\npidfile {pidfile}\n");
    fs::write(&file, &text).expect("a file");
    for (argument, input) in [(file.as_str(), ""), ("-", text.as_str())] {
        let mut command = command(&folder, &[argument]);
        let mut parent = command.stdin(Stdio::piped()).spawn().expect("the program runs");
        let mut pipe = parent.stdin.take().expect("its input is piped");
        pipe.write_all(input.as_bytes()).expect("it reads");
        drop(pipe);
        assert_eq!(end_of(&mut parent, "its end").code(), Some(0));
        eventually("its socket", || UnixStream::connect(&path).is_ok());
        eventually("its pidfile", || fs::read_to_string(&pidfile).is_ok_and(|pid| !pid.is_empty()));
        let mut stream = open_unix(&path);
        stream.write_all(b"SHUTDOWN NOSAVE\r\n").expect("it is taken");
        assert_eq!(read_to_end(stream), b"");
        assert!(!Path::new(&pidfile).exists() && !Path::new(&path).exists());
    }
}

/// Levels `verbose` and `debug` show connections, refused passwords and requests that break the
/// protocol; secrets, keys and values are never logged.
#[test]
fn connections_and_their_errors_are_logged_without_secrets() {
    for level in ["verbose", "debug"] {
        let arguments = ["--port", "0", "--loglevel", level, "--requirepass", "hidden-password"];
        let mut daemon = Daemon::start(&arguments);
        let port = daemon.wait_for_port();
        let mut wire = daemon.connect(port);
        assert!(daemon.wait_for("- Accepted 127.0.0.1:").parse::<u16>().is_ok());
        let refused = wire.call(&["AUTH", "hidden-guess"]);
        assert!(refused.starts_with(b"-WRONGPASS "));
        assert!(daemon.wait_for("Authentication failed for client ").starts_with("id=1 addr="));
        assert_eq!(wire.call(&["AUTH", "hidden-password"]), b"+OK\r\n");
        assert_eq!(wire.call(&["SET", "hidden-key", "hidden-value"]), b"+OK\r\n");
        let info = String::from_utf8_lossy(&wire.call(&["INFO", "stats"])).into_owned();
        assert!(info.contains("\r\nacl_access_denied_auth:1\r\n"), "{info}");
        drop(wire);
        assert!(daemon.wait_for("- Client closed connection ").starts_with("id=1 addr="));
        let mut wire = daemon.connect(port);
        wire.send_bytes(b"*x\r\n");
        let expected = "- -ERR Protocol error: invalid multibulk length from client: ";
        assert!(daemon.wait_for(expected).starts_with("id=2 addr="));
        assert!(daemon.wait_for("- Closed connection ").starts_with("id=2 addr="));
        daemon.signal("TERM");
        assert!(daemon.end().success());
        assert!(!daemon.log_text.contains("hidden"), "{}", daemon.log_text);
    }
}

/// Upstart waits until the process stops itself, and continues it.
#[test]
fn upstart_is_notified_by_a_stop() {
    for supervised in ["upstart", "auto"] {
        let folder = Folder::new();
        let mut command = command(&folder, &["--port", "0", "--supervised", supervised]);
        command.env("UPSTART_JOB", "lockwheel");
        let mut daemon = Daemon::spawn(folder, command, "");
        // Its log may be written only when it continues.
        eventually("the stop", || is_stopped(daemon.process_id()));
        daemon.signal("CONT");
        let port = daemon.wait_for_port();
        check_ping(&daemon, port);
    }
}

#[test]
fn missing_supervisor_is_logged() {
    for (supervised, variable) in [("systemd", "NOTIFY_SOCKET"), ("upstart", "UPSTART_JOB")] {
        let folder = Folder::new();
        let mut command = command(&folder, &["--port", "0", "--supervised", supervised]);
        command.env_remove(variable);
        let mut daemon = Daemon::spawn(folder, command, "");
        let warning = format!("# {supervised} supervision requested, but {variable} not found");
        daemon.wait_for(&warning);
        let port = daemon.wait_for_port();
        check_ping(&daemon, port);
    }
}

/// The value of a field of `INFO`.
fn info(wire: &mut Wire, field: &str) -> f64 {
    let text = String::from_utf8_lossy(&wire.call(&["INFO", "everything"])).into_owned();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("{field} is missing: {text}")).parse().expect("a number")
}

#[test]
fn info_shows_what_the_process_uses() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    let resident = resident_bytes_of(daemon.process_id()) as f64;
    let shown = info(&mut wire, "used_memory_rss");
    assert!((0.5..2.0).contains(&(shown / resident)), "{shown} instead of {resident}");
    assert!(info(&mut wire, "total_system_memory") > shown);
    assert!(info(&mut wire, "allocator_allocated") > 100_000.0);
    let (input, output, reads, writes) = (
        info(&mut wire, "total_net_input_bytes"),
        info(&mut wire, "total_net_output_bytes"),
        info(&mut wire, "total_reads_processed"),
        info(&mut wire, "total_writes_processed"),
    );
    let request = "*2\r\n$4\r\nINFO\r\n$10\r\neverything\r\n".len() as f64;
    // A message to a subscriber counts, too.
    let mut subscriber = daemon.connect(port);
    let confirmation = subscriber.call(&["SUBSCRIBE", "c"]).len();
    assert_eq!(wire.call(&["PUBLISH", "c", "message"]), b":1\r\n");
    let message = subscriber.read().len();
    let grown = info(&mut wire, "total_net_output_bytes") - output;
    assert!(grown > (confirmation + message) as f64, "{grown}");
    assert!(info(&mut wire, "total_net_input_bytes") - input > 2.0 * request);
    assert!(info(&mut wire, "total_reads_processed") > reads);
    assert!(info(&mut wire, "total_writes_processed") > writes);
    eventually("processor time", || {
        info(&mut wire, "used_cpu_user") + info(&mut wire, "used_cpu_sys") > 0.0
            && info(&mut wire, "used_cpu_user_main_thread")
                + info(&mut wire, "used_cpu_sys_main_thread")
                > 0.0
    });
}

/// As a test of Redis expects it: 26 bytes of the request itself are in the buffer.
#[test]
fn client_list_shows_the_buffers_of_its_caller() {
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let mut wire = daemon.connect(port);
    let line = String::from_utf8_lossy(&wire.call(&["client", "list"])).into_owned();
    for field in [" qbuf=26 ", " argv-mem=10 ", " multi-mem=0 ", " obl=0 oll=0 omem=0 "] {
        assert!(line.contains(field), "{field}: {line}");
    }
    let free = line.split(" qbuf-free=").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(free.is_some_and(|free| free.parse::<u32>().is_ok_and(|free| free > 0)), "{line}");
}
