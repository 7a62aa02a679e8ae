//! Clients over TLS get what they get without it; certificates are checked and can be replaced.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;

use lockwheel::{Reply, Server};
use lockwheel_compat::wire::tls::TlsClient;
use lockwheel_tests::blocked_clients;
use lockwheel_tests::certificates::{Certificates, Validity};
use lockwheel_tests::daemon::{Daemon, Folder, run};
use lockwheel_tests::frame::show;
use lockwheel_tests::process::{eventually, output};
use lockwheel_tests::redis_server::{RedisServer, free_port};
use lockwheel_tests::wire::{Wire, open_tcp};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};

fn address(server: &Server) -> SocketAddr {
    server.tls_addr().expect("the server listens for TLS")
}

/// A server, and the configuration of a client that has no certificate.
fn server_and_client() -> (Server, Arc<ClientConfig>) {
    let certificates = Certificates::new();
    let server = certificates.server().start().expect("a server");
    (server, Arc::new(certificates.client_config(None, &[&TLS13])))
}

fn connect(server: &Server, certificates: &Certificates) -> Wire {
    Wire::connect_tls(address(server), &certificates.client())
}

/// A connection of which the test sees the TLS part.
fn open(address: SocketAddr, config: &Arc<ClientConfig>) -> Opened {
    let tcp = open_tcp(address);
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    StreamOwned::new(connection, tcp)
}

type Opened = StreamOwned<ClientConnection, TcpStream>;

fn call(stream: &mut Opened, request: &str, reply: &str) {
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut read = vec![0; reply.len()];
    stream.read_exact(&mut read).expect("a reply");
    assert_eq!(String::from_utf8_lossy(&read), reply);
}

#[test]
fn server_listens_for_tls_only_or_for_both() {
    let certificates = Certificates::new();
    let server = certificates.server().start().expect("a server");
    assert_eq!(server.url(), format!("rediss://{}/", address(&server)));
    assert_eq!(server.addr(), address(&server));
    let mut wire = connect(&server, &certificates);
    let port = address(&server).port();
    assert_eq!(wire.call(&["CONFIG", "GET", "tls-port"]), pair("tls-port", &port.to_string()));
    let info = wire.call(&["INFO", "server"]);
    assert!(show(&info).contains(&format!("tcp_port:{port}\\r\\n")), "{}", show(&info));
    let free = free_port();
    let both = certificates.server().port(free).start().expect("a server");
    assert_eq!((both.addr().port(), both.url()), (free, format!("redis://127.0.0.1:{free}/")));
    Wire::connect(both.addr(), 2).call(&["SET", "k", "v"]);
    assert_eq!(connect(&both, &certificates).call(&["GET", "k"]), b"$1\r\nv\r\n");
}

fn pair(name: &str, value: &str) -> Vec<u8> {
    let (name_length, length) = (name.len(), value.len());
    format!("*2\r\n${name_length}\r\n{name}\r\n${length}\r\n{value}\r\n").into_bytes()
}

#[test]
fn restarted_server_keeps_its_tls_port() {
    let certificates = Certificates::new();
    let mut server = certificates.server().start().expect("a server");
    let before = address(&server);
    server.restart().expect("it starts again");
    assert_eq!(address(&server), before);
    assert_eq!(connect(&server, &certificates).call(&["PING"]), b"+PONG\r\n");
}

#[test]
fn redis_cli_works_over_tls() {
    let certificates = Certificates::new();
    certificates.issue("client", Validity::Now);
    let server = certificates.server().config("tls-auth-clients", "yes").start().expect("a server");
    let path = |name: &str| certificates.path(name);
    let port = address(&server).port().to_string();
    let [ca, cert, key] = ["ca.crt", "client.crt", "client.key"].map(path);
    let arguments =
        ["-p", &port, "--tls", "--cacert", &ca, "--cert", &cert, "--key", &key, "SET", "k", "v"];
    if let Ok(output) = output(Command::new("redis-cli").args(arguments)) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "OK\n", "{output:?}");
    }
    let ours = lockwheel_cli(&arguments[..arguments.len() - 3], &["-h", "localhost", "GET", "k"]);
    assert!(ours.status.success(), "{ours:?}");
}

fn lockwheel_cli(options: &[&str], rest: &[&str]) -> Output {
    let words: Vec<&str> = ["cli"].iter().chain(options).chain(rest).copied().collect();
    run(&words)
}

#[test]
fn lockwheel_cli_checks_the_server() {
    let certificates = Certificates::new();
    let other = Certificates::new();
    certificates.issue("client", Validity::Now);
    let server = certificates.server().start().expect("a server");
    let port = address(&server).port().to_string();
    let uri = format!("rediss://127.0.0.1:{port}");
    let [ca, other_ca] = [&certificates, &other].map(|it| it.path("ca.crt"));
    let [cert, key] = ["client.crt", "client.key"].map(|name| certificates.path(name));
    for (options, expected) in [
        (vec!["-u", &uri, "--cacert", &ca], "PONG"),
        (vec!["-p", &port, "--tls", "--cacert", &ca], "PONG"),
        (vec!["-p", &port, "--tls", "--insecure"], "PONG"),
        (vec!["-u", &uri, "--cacert", &ca, "--sni", "server"], "PONG"),
        (vec!["-u", &uri, "--cacert", &ca, "--cert", &cert, "--key", &key], "PONG"),
        (vec!["-u", &uri, "--cacert", &ca, "--tls-ciphersuites", "TLS_AES_128_GCM_SHA256"], "PONG"),
        (vec!["-u", &uri, "--cacert", &ca, "--sni", "elsewhere"], "SSL_connect failed: "),
        (vec!["-u", &uri, "--cacert", &other_ca], "SSL_connect failed: "),
        (vec!["-u", &uri, "--cacert", "missing"], "missing: No such file or directory"),
        (vec!["-u", &uri, "--cacert", &ca, "--tls-ciphersuites", "X"], "'X' has none of"),
        (vec!["-u", &uri, "--cacert", &ca, "--cert", &cert], "--key"),
    ] {
        let output = lockwheel_cli(&options, &["PING"]);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(expected), "{options:?}: {text}");
        assert_eq!(output.status.success(), expected == "PONG", "{options:?}");
    }
    let folder = Folder::new();
    fs::copy(&ca, folder.path("any.pem")).expect("a copy");
    let output = lockwheel_cli(&["-u", &uri, "--cacertdir", &folder.path("")], &["PING"]);
    assert_eq!(output.stdout, b"PONG\n");
}

#[test]
fn requests_and_replies_of_any_length_arrive() {
    let certificates = Certificates::new();
    for threads in ["1", "2"] {
        let server = certificates.server().config("io-threads", threads).start().expect("a server");
        let mut wire = connect(&server, &certificates);
        // Lengths around that of a record, of several, and of a long output.
        for length in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_600, 3_000_000] {
            let value: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            assert_eq!(wire.call(&[b"SET".as_slice(), b"k", &value]), b"+OK\r\n");
            let mut reply = format!("${length}\r\n").into_bytes();
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\n");
            assert!(wire.call(&["GET", "k"]) == reply, "{length}");
        }
    }
}

#[test]
fn pipelines_are_answered_in_order() {
    const REQUESTS: usize = 20_000;
    let (server, config) = server_and_client();
    let mut stream = open(address(&server), &config);
    // The client reads nothing before it has sent everything: the socket is full in between.
    let value = "v".repeat(100);
    call(&mut stream, &format!("SET k {value}\r\n"), "+OK\r\n");
    let requests: String = (0..REQUESTS).map(|at| format!("ECHO {at}\r\nGET k\r\n")).collect();
    stream.write_all(requests.as_bytes()).expect("it is taken");
    let echo = |at: usize| format!("${}\r\n{at}\r\n$100\r\n{value}\r\n", at.to_string().len());
    let expected: String = (0..REQUESTS).map(echo).collect();
    let mut read = vec![0; expected.len()];
    stream.read_exact(&mut read).expect("all replies");
    assert!(read == expected.as_bytes());
}

#[test]
fn messages_blocking_commands_and_monitor_work() {
    let certificates = Certificates::new();
    let server = certificates.server().config("io-threads", "2").start().expect("a server");
    let [mut subscriber, mut blocked, mut monitor, mut other] =
        [(); 4].map(|()| connect(&server, &certificates));
    subscriber.call(&["SUBSCRIBE", "channel"]);
    assert_eq!(monitor.call(&["MONITOR"]), b"+OK\r\n");
    blocked.send(&["BLPOP", "queue", "0"]);
    eventually("the client to be blocked", || blocked_clients(&server) == 1);
    assert_eq!(other.call(&["PUBLISH", "channel", "text"]), b":1\r\n");
    assert_eq!(subscriber.read(), b"*3\r\n$7\r\nmessage\r\n$7\r\nchannel\r\n$4\r\ntext\r\n");
    assert_eq!(other.call(&["RPUSH", "queue", "element"]), b":1\r\n");
    assert_eq!(blocked.read(), b"*2\r\n$5\r\nqueue\r\n$7\r\nelement\r\n");
    let mut seen = String::new();
    while !seen.contains("RPUSH") {
        seen = String::from_utf8_lossy(&monitor.read()).into_owned();
    }
}

/// An element must not be given to a client that has disconnected, however it did.
#[test]
fn closed_waiters_get_no_element() {
    let certificates = Certificates::new();
    let config = Arc::new(certificates.client_config(None, &[&TLS13]));
    for says_goodbye in [true, false] {
        let server = certificates.server().config("enable-debug-command", "yes");
        let server = server.config("io-threads", "2").start().expect("a server");
        let mut waiter = open(address(&server), &config);
        call(&mut waiter, "PING\r\n", "+PONG\r\n");
        waiter.write_all(b"BLPOP queue 0\r\n").expect("it is taken");
        eventually("the client to be blocked", || blocked_clients(&server) == 1);
        // While the engine sleeps, the server cannot notice the end.
        let mut sleeper = connect(&server, &certificates);
        let mut pusher = connect(&server, &certificates);
        sleeper.send(&["DEBUG", "SLEEP", "0.1"]);
        if says_goodbye {
            waiter.conn.send_close_notify();
            waiter.flush().expect("it is taken");
        }
        drop(waiter);
        pusher.send(&["RPUSH", "queue", "element"]);
        pusher.read();
        assert_eq!(pusher.call(&["LLEN", "queue"]), b":1\r\n");
    }
}

#[test]
fn quit_ends_the_connection_with_an_alert() {
    let (server, config) = server_and_client();
    let mut stream = open(address(&server), &config);
    stream.write_all(b"PING\r\nQUIT\r\n").expect("it is taken");
    let mut read = Vec::new();
    // Without the alert, this would be an error.
    stream.read_to_end(&mut read).expect("a proper end");
    assert_eq!(String::from_utf8_lossy(&read), "+PONG\r\n+OK\r\n");
}

/// The client has ended its output, but still reads.
#[test]
fn half_closed_client_gets_its_replies() {
    let (server, config) = server_and_client();
    let mut stream = open(address(&server), &config);
    stream.write_all(b"PING\r\nECHO a\r\n").expect("it is taken");
    stream.conn.send_close_notify();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).expect("a proper end");
    assert_eq!(String::from_utf8_lossy(&read), "+PONG\r\n$1\r\na\r\n");
}

#[test]
fn script_is_killed_over_tls() {
    let certificates = Certificates::new();
    for threads in ["1", "2"] {
        let server = certificates.server().config("io-threads", threads);
        let server = server.config("busy-reply-threshold", "1").start().expect("a server");
        let [mut early, mut script] = [(); 2].map(|()| connect(&server, &certificates));
        for is_new in [false, true] {
            script.send(&["EVAL", "while true do end", "0"]);
            eventually("others to be refused", || early.call(&["GET", "k"]).starts_with(b"-BUSY "));
            // The handshake of a new connection does not wait for the script.
            let mut new = is_new.then(|| connect(&server, &certificates));
            let killer = new.as_mut().unwrap_or(&mut early);
            assert_eq!(killer.call(&["SCRIPT", "KILL"]), b"+OK\r\n", "{threads}");
            assert!(show(&script.read()).contains("Script killed by user"));
            assert_eq!(killer.call(&["PING"]), b"+PONG\r\n");
        }
    }
}

#[test]
fn versions_and_ciphers_are_those_of_the_directives() {
    let certificates = Certificates::new();
    let server = certificates.server().start().expect("a server");
    let connects = |versions: &[_]| {
        let client = certificates.client_with(None, versions);
        Wire::try_connect_tls(address(&server), &client).is_ok()
    };
    assert!(connects(&[&TLS12]) && connects(&[&TLS13]));
    let set = |name, value| {
        let reply = server.call_raw(&["CONFIG", "SET", name, value]).expect("a reply");
        assert_eq!(reply, Reply::OK, "{name} {value}");
    };
    set("tls-protocols", "TLSv1.3");
    assert!(!connects(&[&TLS12]) && connects(&[&TLS13]));
    set("tls-protocols", "tlsv1.2");
    assert!(connects(&[&TLS12]) && !connects(&[&TLS13]));
    set("tls-protocols", "");
    set("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256");
    set("tls-ciphers", "ECDHE-ECDSA-AES256-GCM-SHA384");
    set("tls-prefer-server-ciphers", "yes");
    let suite = |version| {
        let config = Arc::new(certificates.client_config(None, &[version]));
        let mut stream = open(address(&server), &config);
        call(&mut stream, "PING\r\n", "+PONG\r\n");
        stream.conn.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()))
    };
    assert_eq!(suite(&TLS13).as_deref(), Some("TLS13_CHACHA20_POLY1305_SHA256"));
    let expected = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    assert_eq!(suite(&TLS12).as_deref(), Some(expected));
}

#[test]
fn sessions_are_resumed_if_cached() {
    let certificates = Certificates::new();
    for version in [&TLS12, &TLS13] {
        let server = certificates.server().start().expect("a server");
        let config = Arc::new(certificates.client_config(None, &[version]));
        let kind = || {
            let mut stream = open(address(&server), &config);
            call(&mut stream, "PING\r\n", "+PONG\r\n");
            stream.conn.handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        server.call(&["CONFIG", "SET", "tls-session-caching", "no"]).expect("it is changed");
        assert_eq!([kind(), kind()], [Some(HandshakeKind::Full); 2]);
    }
}

/// The outcome for clients without a certificate, with a valid one, with that of another authority
/// and with one that has expired.
fn outcomes(server: &Server, certificates: &Certificates, other: &Certificates) -> [bool; 4] {
    let clients: [TlsClient; 4] = [
        certificates.client(),
        certificates.client_as("client"),
        with_certificate_of(certificates, other),
        certificates.client_as("expired"),
    ];
    clients.map(|client| Wire::try_connect_tls(address(server), &client).is_ok())
}

/// A client that trusts the first authority, and has a certificate of the second.
fn with_certificate_of(certificates: &Certificates, other: &Certificates) -> TlsClient {
    for suffix in ["crt", "key"] {
        let from = other.path(&format!("client.{suffix}"));
        fs::copy(from, certificates.path(&format!("of_other.{suffix}"))).expect("a copy");
    }
    certificates.client_as("of_other")
}

#[test]
fn client_certificates_are_checked() {
    let (certificates, other) = (Certificates::new(), Certificates::new());
    certificates.issue("client", Validity::Now);
    certificates.issue("expired", Validity::Past);
    other.issue("client", Validity::Now);
    let server = certificates.server().start().expect("a server");
    assert_eq!(outcomes(&server, &certificates, &other), [true; 4]);
    for (mode, expected) in [
        ("yes", [false, true, false, false]),
        ("optional", [true, true, false, false]),
        ("no", [true; 4]),
    ] {
        server.call(&["CONFIG", "SET", "tls-auth-clients", mode]).expect("it is changed");
        assert_eq!(outcomes(&server, &certificates, &other), expected, "{mode}");
    }
}

/// As with OpenSSL. A certificate in `tls-ca-cert-file` that is not that of an authority admits its
/// owner only.
#[test]
fn configured_self_signed_certificates_are_those_of_clients() {
    let certificates = Certificates::new();
    certificates.issue_self_signed("own", false);
    certificates.issue_self_signed("authority", true);
    let builder = certificates.server().config("tls-auth-clients", "yes");
    let server = builder.start().expect("a server");
    let redis = RedisServer::start_with_tls(&certificates);
    certificates.issue_self_signed("unknown", false);
    let copy = |from: &str, to: &str| {
        fs::copy(certificates.path(from), certificates.path(to)).expect("a copy");
    };
    copy("own.crt", "stolen.crt");
    copy("of_own.key", "stolen.key");
    copy("authority.crt", "stolen_authority.crt");
    copy("of_own.key", "stolen_authority.key");
    let redis = redis.as_ref().map(|(server, port)| SocketAddr::new(server.address().ip(), *port));
    for place in [Some(address(&server)), redis].into_iter().flatten() {
        for (name, is_accepted) in [
            ("own", true),
            ("of_own", false),
            ("authority", true),
            ("of_authority", true),
            ("unknown", false),
            ("stolen", false),
            ("stolen_authority", false),
        ] {
            for version in [&TLS12, &TLS13] {
                let client = certificates.client_with(Some(name), &[version]);
                let result = Wire::try_connect_tls(place, &client);
                assert_eq!(result.is_ok(), is_accepted, "{name} {version:?}");
            }
        }
    }
}

#[test]
fn certificate_is_replaced_while_the_server_runs() {
    let certificates = Certificates::new();
    let server = certificates.server().start().expect("a server");
    let config = Arc::new(certificates.client_config(None, &[&TLS13]));
    let shown = || {
        let mut stream = open(address(&server), &config);
        call(&mut stream, "PING\r\n", "+PONG\r\n");
        stream.conn.peer_certificates().map(|chain| chain[0].to_vec()).expect("a certificate")
    };
    server.call(&["CONFIG", "SET", "tls-session-caching", "no"]).expect("it is changed");
    let mut old = connect(&server, &certificates);
    let first = shown();
    // Another file, then the same file with another content.
    certificates.issue("new", Validity::Now);
    let [cert, key] = ["new.crt", "new.key"].map(|name| certificates.path(name));
    let set = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    server.call(&set).expect("it is changed");
    let second = shown();
    certificates.issue("new", Validity::Now);
    assert_eq!(shown(), second);
    server.call(&set).expect("it is read again");
    let third = shown();
    certificates.issue("new", Validity::Now);
    assert!(server.reload_tls().expect("it is read again"));
    let fourth = shown();
    assert!(first != second && second != third && third != fourth);
    // A mistake changes nothing.
    let empty = certificates.path("empty");
    fs::write(&empty, "").expect("a file");
    for (request, reason) in [
        (&["CONFIG", "SET", "tls-key-file", "none", "timeout", "5"][..], "none: No such file"),
        (&["CONFIG", "SET", "tls-protocols", "TLSv1.1"], "TLSv1.1 is insecure and not supported"),
        (&["CONFIG", "SET", "tls-ciphers", "RC4"], "'RC4' selects none of"),
        (&["CONFIG", "SET", "tls-cert-file", &empty], "no certificate was found"),
    ] {
        let Reply::Error(text) = server.call_raw(request).expect("a reply") else {
            panic!("{request:?} is accepted")
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let begin = format!(
            "ERR CONFIG SET failed (possibly related to argument '{}') - Unable to update TLS \
             configuration. Check server logs. ",
            request[2]
        );
        assert!(text.starts_with(&begin) && text.contains(reason), "{text}");
    }
    fs::write(&cert, "no certificate").expect("a file");
    assert!(server.reload_tls().is_err());
    assert_eq!(shown(), fourth);
    assert_eq!(old.call(&["CONFIG", "GET", "timeout"]), pair("timeout", "0"));
    assert_eq!(old.call(&["CONFIG", "GET", "tls-key-file"]), pair("tls-key-file", &key));
}

#[test]
fn daemon_logs_and_reloads() {
    let certificates = Certificates::new();
    let port = free_port();
    let mut daemon = Daemon::start(&certificates.options(port));
    assert_eq!(daemon.wait_for("Running mode=standalone, port="), format!("{port}."));
    assert!(daemon.wait_for("* Ready to accept connections").starts_with("tls: "));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    certificates.issue("client", Validity::Now);
    let mut wire = Wire::connect_tls(address, &certificates.client_as("client"));
    let title = fs::read_to_string(format!("/proc/{}/cmdline", daemon.process_id()));
    assert!(title.expect("a title").contains(&format!(" 127.0.0.1:{port}")));
    daemon.signal("HUP");
    daemon.wait_for("Received SIGHUP: TLS is configured anew");
    fs::write(certificates.path("server.key"), "").expect("a file");
    daemon.signal("HUP");
    daemon.wait_for("# Received SIGHUP: Failed to configure TLS, the old configuration stays in");
    assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
    Wire::connect_tls(address, &certificates.client_as("client"));
}

#[test]
fn files_without_an_end_are_refused_while_clients_are_served() {
    let certificates = Certificates::new();
    let (port, users) = (free_port(), certificates.path("users.acl"));
    fs::write(&users, "user default on nopass ~* +@all\n").expect("a file");
    let mut options = certificates.options(port);
    options.extend(["--tls-auth-clients", "no", "--aclfile", &users].map(String::from));
    let mut daemon = Daemon::start(&options);
    daemon.wait_for("* Ready to accept connections");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut wire = Wire::connect_tls(address, &certificates.client());
    for name in ["tls-ca-cert-file", "tls-cert-file", "tls-key-file"] {
        let reply = wire.ask(&format!("CONFIG SET {name} /dev/zero"));
        assert!(reply.ends_with("/dev/zero: it is not a regular file\r\n"), "{reply}");
    }
    // A hole takes no space.
    let long = File::create(certificates.path("long")).expect("a file");
    long.set_len(5 << 20).expect("a hole");
    let reply = wire.ask(&format!("CONFIG SET tls-ca-cert-file {}", certificates.path("long")));
    assert!(reply.ends_with("it is longer than 4194304 bytes\r\n"), "{reply}");
    let endless = certificates.path("server.key");
    for (path, warning) in [
        (&users, "# Received SIGHUP: the users stay as they are: "),
        (&endless, "# Received SIGHUP: Failed to configure TLS, the old configuration stays in"),
    ] {
        fs::remove_file(path).expect("a file");
        // It lets a reader wait for a writer.
        let made = Command::new("mkfifo").arg(path).status();
        assert!(made.is_ok_and(|status| status.success()), "a FIFO");
        daemon.signal("HUP");
        let error = daemon.wait_for(warning);
        assert!(error.contains("it is not a regular file"), "{error}");
        assert_eq!(wire.call(&["PING"]), b"+PONG\r\n");
    }
}

#[test]
fn unusable_settings_are_refused_at_the_start() {
    let certificates = Certificates::new();
    let other = Certificates::new();
    fs::write(certificates.path("empty"), "").expect("a file");
    let kind = "ENCRYPTED PRIVATE KEY";
    let encrypted = format!("-----BEGIN {kind}-----\nMAA=\n-----END {kind}-----\n");
    fs::write(certificates.path("encrypted"), encrypted).expect("a file");
    let path = |name| certificates.path(name);
    let other_key = other.path("server.key");
    for (name, value, reason) in [
        ("tls-cert-file", "", "No tls-cert-file configured!"),
        ("tls-key-file", "", "No tls-key-file configured!"),
        ("tls-cert-file", "/none", "Failed to load certificate: /none: No such file"),
        ("tls-cert-file", &path("empty"), "empty: no certificate was found"),
        ("tls-key-file", &path("empty"), "empty: no private key was found"),
        ("tls-key-file", &path("encrypted"), "encrypted keys are not supported by this server"),
        ("tls-key-file", &other_key, "it is not that of"),
        ("tls-ca-cert-file", "/none", "certificate(s) file/directory: /none: No such file"),
        ("tls-ca-cert-file", &path("empty"), "no certificate was found"),
        ("tls-ca-cert-dir", "/none", "certificate(s) file/directory: /none: No such file"),
        ("tls-protocols", "TLSv1 TLSv1.2", "TLSv1 is insecure and not supported by this server"),
        ("tls-protocols", "SSL", "Unknown tls-protocols specified: SSL. Use a combination of"),
        ("tls-ciphers", "MD5", "'MD5' selects none of"),
        ("tls-ciphersuites", "MD5", "'MD5' has none of"),
        ("tls-key-file-pass", "secret", "not supported by this server"),
    ] {
        let started = certificates.server().config(name, value).start();
        let error = started.expect_err(name).to_string();
        assert!(error.contains(reason), "{name} {value}: {error}");
    }
    let started = Server::builder().tls(path("server.crt"), path("server.key"));
    let error = started.config("tls-auth-clients", "yes").start().expect_err("no authority");
    assert!(error.to_string().contains("Either tls-ca-cert-file or tls-ca-cert-dir must be"));
}

/// Without a TLS port, nothing depends on these directives.
#[test]
fn directives_are_not_checked_without_a_port() {
    let server = Server::start().expect("a server");
    let request = ["CONFIG", "SET", "tls-cert-file", "none", "tls-protocols", "TLSv1"];
    assert_eq!(server.call_raw(&request).expect("a reply"), Reply::OK);
    assert!(!server.reload_tls().expect("nothing is read"));
    let reply = server.call_raw(&["CONFIG", "SET", "tls-port", "1"]).expect("a reply");
    let text = "ERR CONFIG SET failed (possibly related to argument 'tls-port') - can be set only \
                when the server starts";
    assert_eq!(reply, Reply::Error(text.into()));
}

/// Each client gets a port of its own kind.
#[test]
fn cluster_announces_the_port_of_the_connection() {
    let certificates = Certificates::new();
    let server = certificates.server().port(free_port()).config("cluster-enabled", "yes");
    let server = server.start().expect("a server");
    let (plain, tls) = (server.addr().port(), address(&server).port());
    let nodes = |mut wire: Wire| show(&wire.call(&["CLUSTER", "NODES"]));
    assert!(nodes(Wire::connect(server.addr(), 2)).contains(&format!(" 127.0.0.1:{plain}@")));
    assert!(nodes(connect(&server, &certificates)).contains(&format!(" 127.0.0.1:{tls}@")));
    let shards = show(&connect(&server, &certificates).call(&["CLUSTER", "SHARDS"]));
    for (name, port) in [("port", plain), ("tls-port", tls)] {
        assert!(shards.contains(&format!("{name}\\r\\n:{port}\\r\\n")), "{shards}");
    }
    server.call(&["CONFIG", "SET", "cluster-announce-tls-port", "7001"]).expect("it is changed");
    assert!(nodes(connect(&server, &certificates)).contains(" 127.0.0.1:7001@"));
}

/// A client's certificate is checked after the client believes the handshake complete.
#[test]
fn refused_client_sees_the_alert() {
    let certificates = Certificates::new();
    let server = certificates.server().config("tls-auth-clients", "yes").start().expect("a server");
    let config = Arc::new(certificates.client_config(None, &[&TLS13]));
    let mut stream = open(address(&server), &config);
    // The alert may come while the request is sent.
    let _ = stream.write_all(b"PING\r\n");
    let error = stream.read(&mut [0; 10]).expect_err("no reply");
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
}

#[test]
fn compatibility_suite_passes_over_tls() {
    let certificates = Certificates::new();
    let server = certificates.server().config("io-threads", "2").start().expect("a server");
    let url = server.url();
    let ca = certificates.path("ca.crt");
    let only = ["--only", "Redisson", "--only", "Pub/sub", "--only", "Blocking"];
    let words = ["compat", &url, "--cacert", &ca, "--quick", "--seconds", "0.5"];
    let words = [&words[..], &only, &["--time-limit", "5m"]].concat();
    let output = run(&words);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let words = ["compat", &url, "--quick"];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(2), "the authority is not trusted");
}
