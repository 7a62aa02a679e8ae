//! The exporter of Redis's figures for Prometheus reads the same series from this server as from a
//! real one, with its default flags and without an error.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use lockwheel_tests::daemon::Daemon;
use lockwheel_tests::left_out;
use lockwheel_tests::process::{eventually, output};
use lockwheel_tests::redis_server::{RedisServer, free_port};
use lockwheel_tests::wire::{Wire, open_tcp};

/// Debian's name of the program.
const EXPORTER: &str = "prometheus-redis-exporter";
/// Series whose value is 0 here, and why.
const ZERO_HERE: [(&str, &str); 3] = [
    ("redis_expired_stale_percentage", "keys are removed at their deadlines"),
    ("redis_memory_used_startup_bytes", "the memory of the program is not part of used_memory"),
    ("redis_replication_backlog_bytes", "there is no backlog without replicas"),
];

/// Series that are 0 or not by chance: times that may be shorter than their unit.
const TIMES: [&str; 5] = [
    "redis_commands_duration_seconds_total",
    "redis_cpu_",
    "redis_exporter_",
    "redis_latency_percentiles_usec_sum",
    "redis_uptime_in_seconds",
];

/// A running exporter.
struct Exporter {
    child: Child,
    address: SocketAddr,
}

impl Exporter {
    fn start(server: SocketAddr) -> Exporter {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new(EXPORTER)
            .args(["--redis.addr", &format!("redis://{server}")])
            .args(["--web.listen-address", &address.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the exporter runs");
        eventually("the exporter listens", || TcpStream::connect(address).is_ok());
        Exporter { child, address }
    }

    /// The samples: by their name, and by their name and the names of their labels.
    fn scrape(&self) -> BTreeMap<String, f64> {
        let mut stream = open_tcp(self.address);
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the metrics");
        let lines = text.lines().filter(|line| line.starts_with("redis_"));
        let samples = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            Some((series.to_owned(), value.parse().ok()?))
        });
        samples.collect()
    }

    /// Ends the exporter; returns its log.
    fn end(mut self) -> String {
        self.child.kill().expect("it is stopped");
        let mut log = String::new();
        let mut pipe = self.child.stderr.take().expect("its log is piped");
        pipe.read_to_string(&mut log).expect("its log");
        let _ = self.child.wait();
        log
    }
}

/// The series of a server after commands of all kinds.
fn series_of(server: SocketAddr) -> BTreeMap<String, f64> {
    let mut wire = Wire::connect(server, 2);
    for command in [
        "SET lock token NX PX 60000",
        "SET lock other NX PX 60000",
        "SET late token PX 1",
        "EVAL return(1) 0",
        "GET lock",
        "GET missing",
        "NOSUCH",
        "CONFIG SET slowlog-log-slower-than 0",
        "PING",
    ] {
        wire.ask(command);
    }
    eventually("the expiry", || wire.ask("DBSIZE").contains('1'));
    let exporter = Exporter::start(server);
    let _first = exporter.scrape();
    let samples = exporter.scrape();
    let log = exporter.end();
    assert!(!log.contains("level=error") && !log.contains("level=warning"), "{log}");
    samples
}

/// The name of a series without the values of its labels, but with the name of the command or
/// database, which both servers have.
fn name(series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.trim_end_matches('}').split("\",");
    let labels = labels.filter_map(|label| {
        let (label, value) = label.split_once("=\"")?;
        let is_shared = ["cmd", "db", "err", "quantile"].contains(&label);
        Some(if is_shared { format!("{label}={}", value.trim_matches('"')) } else { label.into() })
    });
    format!("{name} {}", labels.collect::<Vec<_>>().join(" "))
}

#[test]
fn exporter_reads_the_series_of_redis() {
    let is_installed = output(Command::new(EXPORTER).arg("--version"));
    if is_installed.is_err() {
        return left_out::without(EXPORTER);
    }
    let Some(redis) = RedisServer::start() else { return };
    let expected = series_of(redis.address());
    let mut daemon = Daemon::start(&["--port", "0"]);
    let port = daemon.wait_for_port();
    let samples = series_of(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let samples: BTreeMap<String, f64> =
        samples.iter().map(|(series, value)| (name(series), *value)).collect();
    let mut missing = Vec::new();
    for (series, value) in &expected {
        let series = name(series);
        let is_zero_here = ZERO_HERE.iter().any(|(zero, _)| series.trim() == *zero);
        let is_time = TIMES.iter().any(|time| series.starts_with(time));
        match samples.get(&series) {
            None => missing.push(format!("{series} is missing")),
            Some(0.0) if *value != 0.0 && !is_zero_here && !is_time => {
                missing.push(format!("{series} is 0 instead of {value}"));
            }
            Some(_) => {}
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    // Counters of the same commands.
    for series in [
        "redis_keyspace_hits_total ",
        "redis_keyspace_misses_total ",
        "redis_expired_keys_total ",
        "redis_commands_total cmd=set",
        "redis_commands_failed_calls_total cmd=get",
        "redis_db_keys db=db0",
    ] {
        let other = expected.iter().find(|(it, _)| name(it) == series).map(|(_, value)| *value);
        assert_eq!(samples.get(series).copied(), other, "{series}");
    }
}
