//! The listener for monitoring, over HTTP.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;

use crate::raft_command::NodePlace;

/// Longest time until a page arrives; far longer than it needs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A server with a listener for monitoring.
pub(crate) struct Monitored {
    pub(crate) daemon: Daemon,
    pub(crate) port: u16,
    pub(crate) admin_port: u16,
}

impl Monitored {
    pub(crate) fn start(arguments: &[&str]) -> Monitored {
        let admin_port = free_port();
        let text = admin_port.to_string();
        let first = ["--port", "0", "--admin-port", &text];
        let mut daemon = Daemon::start(&[&first, arguments].concat());
        let port = daemon.wait_for_port();
        Monitored { daemon, port, admin_port }
    }

    pub(crate) fn run(&self, command: &str) -> String {
        self.daemon.connect(self.port).ask(command).trim_end().to_owned()
    }

    /// Sends a request with these lines; returns the status and the rest of the reply.
    pub(crate) fn request(&self, first_line: &str, headers: &[&str]) -> (u16, String) {
        self.send(first_line, headers, "")
    }

    /// As [`Monitored::request`], with a body.
    pub(crate) fn send(&self, first_line: &str, headers: &[&str], body: &str) -> (u16, String) {
        converse(&mut self.connect(), first_line, headers, body)
    }

    /// A connection to the port for monitoring.
    pub(crate) fn connect(&self) -> TcpStream {
        let address = (Ipv4Addr::LOCALHOST, self.admin_port);
        let stream = TcpStream::connect(address).expect("the port for monitoring");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a socket");
        stream
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.request(&format!("GET {path}"), &["Host: localhost"])
    }

    /// The value of a series of `/metrics`.
    fn figure(&self, series: &str) -> f64 {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200, "{text}");
        let mut values =
            text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = values.next().unwrap_or_else(|| panic!("{series} is not in\n{text}"));
        value.parse().expect("a number")
    }
}

/// Sends one request on a connection, and reads the reply and the end.
pub(crate) fn converse(
    stream: &mut (impl Read + Write),
    first_line: &str,
    headers: &[&str],
    body: &str,
) -> (u16, String) {
    let mut request = format!("{first_line} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        let _ = write!(request, "{header}\r\n");
    }
    if !body.is_empty() {
        let _ = write!(request, "Content-Length: {}\r\n", body.len());
    }
    let _ = write!(request, "\r\n{body}");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply and its end");
    let status = reply.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    (status.and_then(|status| status.parse().ok()).expect("a status"), reply)
}

#[test]
fn figures_are_those_of_the_server() {
    let server = Monitored::start(&["--maxclients", "77"]);
    assert_eq!(server.run("SET lock s3cret NX PX 100000"), "+OK");
    assert_eq!(server.run("SET lock s3cret NX PX 100000"), "$-1");
    assert_eq!(server.run("SET data value"), "+OK");
    assert!(server.run("INCR data").starts_with("-ERR"));
    assert!(server.run("GET").starts_with("-ERR wrong number"));
    for (series, value) in [
        ("lockwheel_max_clients", 77.0),
        ("lockwheel_keys{database=\"0\"}", 2.0),
        ("lockwheel_leases{database=\"0\"}", 1.0),
        ("lockwheel_command_time_seconds_count{command=\"set\"}", 3.0),
        ("lockwheel_command_time_seconds_bucket{le=\"+Inf\",command=\"set\"}", 3.0),
        ("lockwheel_command_failed_total{command=\"incr\"}", 1.0),
        ("lockwheel_command_rejected_total{command=\"get\"}", 1.0),
        ("lockwheel_error_replies_by_code_total{code=\"ERR\"}", 2.0),
        ("lockwheel_error_replies_total", 2.0),
        ("lockwheel_log_enabled", 0.0),
        ("lockwheel_log_last_write_ok", 1.0),
    ] {
        assert_eq!(server.figure(series), value, "{series}");
    }
    assert!(server.figure("process_resident_memory_bytes") > 1e6);
    assert!(server.figure("lockwheel_network_input_bytes_total") > 100.0);
    let (_, text) = server.get("/metrics");
    let secrets = ["lock\"", "s3cret", "NaN"];
    assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn requests_for_monitoring_are_not_counted() {
    let server = Monitored::start(&[]);
    let mut wire = server.daemon.connect(server.port);
    wire.ask("SET lock token NX PX 100000");
    assert_eq!(wire.ask("CONFIG RESETSTAT").trim_end(), "+OK");
    let paths = ["/readyz", "/metrics", "/", "/session", "/locks", "/locks/lock"];
    for path in paths {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
    assert_eq!(server.get("/locks?cursor=x").0, 400);
    for (series, value) in [
        ("lockwheel_commands_total", 1.0),
        ("lockwheel_connected_clients", 1.0),
        ("lockwheel_connections_received_total", 0.0),
        ("lockwheel_error_replies_total", 0.0),
        ("lockwheel_command_time_seconds_count{command=\"config|resetstat\"}", 1.0),
    ] {
        assert_eq!(server.figure(series), value, "{series}");
    }
    let info = wire.ask("INFO everything");
    for counted in ["cmdstat_info", "cmdstat_ping", "cmdstat_acl", "cmdstat_lockwheel", "errorstat"]
    {
        assert!(!info.contains(counted), "{info}");
    }
    assert!(info.contains("total_commands_processed:1\r\n"), "{info}");
}

#[test]
fn commands_do_not_reach_the_clients_for_monitoring() {
    let server = Monitored::start(&[]);
    let pages = ["/readyz", "/metrics", "/locks"];
    for page in pages {
        assert_eq!(server.get(page).0, 200, "{page}");
    }
    // The only client: one that has disconnected may still be there.
    let mut only = server.daemon.connect(server.port);
    for command in ["ADDR in-process:0", "USER default SKIPME yes", "TYPE normal"] {
        assert_eq!(only.ask(&format!("CLIENT KILL {command}")), ":0\r\n", "{command}");
    }
    for serial in 1..10 {
        server.run(&format!("CLIENT KILL ID {serial}"));
        server.run(&format!("CLIENT UNBLOCK {serial} ERROR"));
    }
    assert!(!server.run("CLIENT LIST").contains("in-process"));
    for page in pages {
        assert_eq!(server.get(page).0, 200, "{page}");
    }
}

#[test]
fn metrics_are_those_of_the_documentation_the_dashboard_and_the_alerts() {
    // A node has all figures.
    let (folder, admin_port) = (Folder::new(), free_port());
    let mut place = NodePlace::new(&folder, "node");
    place.arguments.extend(["--admin-port".to_owned(), admin_port.to_string()]);
    let daemon = place.start(&["raft", "init"]);
    place.wait_for_nodes(1);
    let server = Monitored { daemon, port: place.port, admin_port };
    server.run("SET lock token");
    server.run("GET");
    let (_, text) = server.get("/metrics");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut names: Vec<String> = Vec::new();
    for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
        match kind {
            "counter" => names.push(format!("{name}_total")),
            "info" => names.push(format!("{name}_info")),
            "histogram" => {
                names.extend(["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")));
            }
            _ => names.push(name.to_owned()),
        }
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let read = |path| std::fs::read_to_string(format!("{root}/{path}")).expect(path);
    let page = read("docs/monitoring.md");
    for name in &names {
        let of_histogram = |end| name.strip_suffix(end).filter(|it| it.ends_with("_time_seconds"));
        let family = ["_bucket", "_count", "_sum"].into_iter().find_map(of_histogram);
        let shown = format!("| `{}` |", family.unwrap_or(name));
        assert!(page.contains(&shown), "{shown} is not in docs/monitoring.md");
    }
    let dashboard = read("packages/prometheus/grafana-dashboard.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("a dashboard");
    names.extend(
        names.iter().filter_map(|name| Some(name.strip_suffix("_sum")?.into())).collect::<Vec<_>>(),
    );
    for (path, text) in [
        ("the dashboard", dashboard),
        ("the alerts", read("packages/prometheus/alerts.yml")),
        ("docs/deploy.md", read("docs/deploy.md")),
        ("docs/runbook.md", read("docs/runbook.md")),
    ] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_metric = |word: &&str| {
            word.starts_with("lockwheel_") && !word.ends_with('_') || word.starts_with("process_")
        };
        let used: Vec<&str> = words.filter(is_metric).collect();
        assert!(!used.is_empty(), "{path}");
        for word in used {
            assert!(names.iter().any(|name| name == word), "{word} in {path} is no metric");
        }
    }
}

/// Shows S4.
#[test]
fn server_is_ready_when_the_restart_guard_is_over() {
    let server = Monitored::start(&[]);
    assert_eq!(server.get("/readyz").0, 200);
    assert_eq!(server.get("/healthz").0, 200);
    // In its last second, requests of clients are held.
    for guard in ["1000s", "1s"] {
        let guarded = Monitored::start(
            &[
                &["--restart-guard", "yes", "--restart-guard-minimum", guard][..],
                &["--dir", ".", "--clock-frozen", "yes"],
            ]
            .concat(),
        );
        let (status, text) = guarded.get("/readyz");
        assert!(status == 503 && text.contains("LOADING"), "{text}");
        assert_eq!(guarded.get("/healthz").0, 200);
        assert_eq!(guarded.figure("lockwheel_loading"), 1.0);
    }
}

#[test]
fn requests_for_another_host_are_refused() {
    let server = Monitored::start(&[]);
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:9", "127.0.0.1", "[::1]:80", "[::1]"] {
        let (status, text) = server.request("GET /healthz", &[&format!("Host: {host}")]);
        assert_eq!(status, 200, "{host}: {text}");
        assert!(text.contains("content-security-policy: default-src 'none'"), "{text}");
        assert!(text.contains("cache-control: no-store"), "{text}");
    }
    for host in ["example.org", "127.0.0.1.example.org", "localhost.example.org:1", "", "[::1"] {
        let (status, text) = server.request("GET /metrics", &[&format!("Host: {host}")]);
        assert_eq!(status, 421, "{host}: {text}");
    }
    let twice = server.request("GET /metrics", &["Host: localhost", "Host: example.org"]);
    assert!(twice.0 == 421 || twice.0 == 400, "{}", twice.1);
}

#[test]
fn malformed_requests_are_refused() {
    let server = Monitored::start(&[]);
    assert_eq!(server.request("POST /metrics", &["Host: localhost"]).0, 405);
    assert_eq!(server.get("/lock").0, 404);
    let long = format!("Host: localhost\r\nX: {}", "x".repeat(100_000));
    assert_eq!(server.request("GET /healthz", &[&long]).0, 431);
    assert_eq!(server.get("/healthz").0, 200);
}

/// Reads one reply of a connection that stays open; returns its first line and its body.
fn read_reply(stream: &mut BufReader<TcpStream>) -> (String, String) {
    let mut line = || {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let first_line = line();
    let mut body_bytes = 0;
    loop {
        match line().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                body_bytes = value.parse().expect("a number");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; body_bytes];
    stream.read_exact(&mut body).expect("a body");
    (first_line, String::from_utf8(body).expect("a text"))
}

#[test]
fn connection_serves_several_requests() {
    let server = Monitored::start(&[]);
    server.run("SET lock token NX PX 100000");
    let mut stream = BufReader::new(server.connect());
    let send = |stream: &mut BufReader<TcpStream>, paths: &[&str]| {
        let request = |path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let requests: String = paths.iter().map(request).collect();
        stream.get_mut().write_all(requests.as_bytes()).expect("requests");
    };
    for (path, status, text) in [
        ("/healthz", "200 OK", "ok\n"),
        ("/none", "404 Not Found", ""),
        ("/readyz", "200 OK", "ready\n"),
    ] {
        send(&mut stream, &[path]);
        assert_eq!(read_reply(&mut stream), (format!("HTTP/1.1 {status}"), text.to_owned()));
    }
    // The replies to requests that arrive together are in their order.
    send(&mut stream, &["/locks/lock", "/healthz", "/metrics"]);
    let bodies: Vec<String> = (0..3).map(|_| read_reply(&mut stream).1).collect();
    let parts = ["\"key\":\"lock\"", "ok\n", "# EOF\n"];
    for (body, part) in bodies.iter().zip(parts) {
        assert!(body.contains(part), "{body}");
    }
    let (status, reply) = converse(stream.get_mut(), "GET /healthz", &["Host: localhost"], "");
    assert_eq!(status, 200, "{reply}");
}

#[test]
fn slow_script_delays_readiness_and_not_health() {
    let server = Monitored::start(&["--busy-reply-threshold", "50"]);
    let mut wire = server.daemon.connect(server.port);
    wire.send(&["EVAL", "while true do end", "0"]);
    // The script runs when another client is refused because of it.
    eventually("a slow script", || server.run("PING").starts_with("-BUSY"));
    assert_eq!(server.get("/healthz").0, 200);
    assert_eq!(server.run("SCRIPT KILL"), "+OK");
    assert!(wire.read_text().starts_with("-ERR"));
    assert_eq!(server.get("/readyz").0, 200);
}

#[test]
fn wrong_addresses_end_the_start() {
    for (bind, reason) in [
        ("0.0.0.0", "admin-bind 0.0.0.0: an address other than loopback needs `admin-tls yes`"),
        ("localhost", "admin-bind localhost: not an address"),
        ("", "admin-port needs an address in admin-bind"),
    ] {
        let port = free_port().to_string();
        let ended = daemon::run(&["--port", "0", "--admin-port", &port, "--admin-bind", bind]);
        let log = String::from_utf8_lossy(&ended.stdout);
        assert!(!ended.status.success() && log.contains(reason), "{log}");
    }
    let server = Monitored::start(&[]);
    let taken = server.admin_port.to_string();
    let ended = daemon::run(&["--port", "0", "--admin-port", &taken]);
    let log = String::from_utf8_lossy(&ended.stdout);
    assert!(!ended.status.success() && log.contains("Address already in use"), "{log}");
}
