//! `/metrics`: the figures of `INFO` and `LATENCY HISTOGRAM` as Prometheus names them. Times are in
//! seconds, sizes in bytes. No key is a label: their number has no bound, and they may be secret.

use std::collections::BTreeMap;
use std::fmt;

use lockwheel::Reply;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

/// The type of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A figure that is a field of `INFO`.
struct Figure {
    field: &'static str,
    kind: Kind,
    /// The name without the unit and `_total`, which the type adds.
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It only grows.
    Counter,
    Gauge,
    /// A gauge that is 1 if the field is `ok`, else 0.
    IsOk,
}

use Kind::{Counter, Gauge, IsOk};

const NUMBER: Option<Unit> = None;
const BYTES: Option<Unit> = Some(Unit::Bytes);
const SECONDS: Option<Unit> = Some(Unit::Seconds);

const fn row(
    field: &'static str,
    kind: Kind,
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
) -> Figure {
    Figure { field, kind, name, unit, help }
}

/// The figures that are single fields of `INFO`.
#[rustfmt::skip]
const FIGURES: &[Figure] = &[
    row("uptime_in_seconds", Gauge, "lockwheel_uptime", SECONDS, "Time since the start"),
    row("connected_clients", Gauge, "lockwheel_connected_clients", NUMBER, "Connected clients"),
    row("maxclients", Gauge, "lockwheel_max_clients", NUMBER, "Limit of connected clients"),
    row("blocked_clients", Gauge, "lockwheel_blocked_clients", NUMBER,
        "Clients in a blocking command"),
    row("tracking_clients", Gauge, "lockwheel_tracking_clients", NUMBER,
        "Clients that track keys"),
    row("pubsub_channels", Gauge, "lockwheel_channels", NUMBER, "Channels with subscribers"),
    row("pubsub_patterns", Gauge, "lockwheel_channel_patterns", NUMBER,
        "Patterns with subscribers"),
    row("total_connections_received", Counter, "lockwheel_connections_received", NUMBER,
        "Accepted connections"),
    row("rejected_connections", Counter, "lockwheel_connections_rejected", NUMBER,
        "Connections beyond maxclients"),
    row("evicted_clients", Counter, "lockwheel_clients_evicted", NUMBER,
        "Clients closed by maxmemory-clients"),
    row("total_commands_processed", Counter, "lockwheel_commands", NUMBER,
        "Commands that were run"),
    row("total_error_replies", Counter, "lockwheel_error_replies", NUMBER, "Error replies"),
    row("total_net_input_bytes", Counter, "lockwheel_network_input", BYTES,
        "Bytes read from clients"),
    row("total_net_output_bytes", Counter, "lockwheel_network_output", BYTES,
        "Bytes sent to clients"),
    row("expired_keys", Counter, "lockwheel_expired_keys", NUMBER,
        "Keys that were removed at their deadline"),
    row("keyspace_hits", Counter, "lockwheel_keyspace_hits", NUMBER,
        "Look-ups of keys that exist"),
    row("keyspace_misses", Counter, "lockwheel_keyspace_misses", NUMBER,
        "Look-ups of keys that do not exist"),
    row("used_memory", Gauge, "lockwheel_memory_used", BYTES,
        "Memory of keys, scripts and clients"),
    row("used_memory_peak", Gauge, "lockwheel_memory_used_peak", BYTES, "Largest used memory"),
    row("used_memory_rss", Gauge, "process_resident_memory", BYTES,
        "Resident memory of the process"),
    row("maxmemory", Gauge, "lockwheel_memory_max", BYTES,
        "Limit of the used memory; 0 is none"),
    row("number_of_cached_scripts", Gauge, "lockwheel_cached_scripts", NUMBER,
        "Scripts in the cache"),
    row("loading", Gauge, "lockwheel_loading", NUMBER, "Whether the log is being loaded"),
    row("aof_enabled", Gauge, "lockwheel_log_enabled", NUMBER,
        "Whether changes are logged on disk"),
    row("aof_last_write_status", IsOk, "lockwheel_log_last_write_ok", NUMBER,
        "Whether the last write of the log succeeded"),
    row("locks_held", Gauge, "lockwheel_locks_held", NUMBER,
        "Keys that are or may be locks"),
    row("locks_acquired", Counter, "lockwheel_locks_acquired", NUMBER,
        "Locks that were acquired"),
    row("locks_renewed", Counter, "lockwheel_locks_renewed", NUMBER,
        "Leases of locks that were renewed"),
    row("locks_released", Counter, "lockwheel_locks_released", NUMBER,
        "Locks that were released by a client"),
    row("locks_expired", Counter, "lockwheel_locks_expired", NUMBER,
        "Locks whose lease ended before their release"),
    row("locks_refused", Counter, "lockwheel_locks_refused", NUMBER,
        "Attempts to acquire a held lock"),
    row("locks_forced", Counter, "lockwheel_locks_forced", NUMBER,
        "Locks that were released by force"),
    row("native_locks_waiting_clients", Gauge, "lockwheel_native_locks_waiting_clients", NUMBER,
        "Clients in the queues of native locks"),
    row("last_fencing_token", Gauge, "lockwheel_last_fencing_token", NUMBER,
        "Fencing token of the last grant; 0 before the first"),
    row("raft_leads", Gauge, "lockwheel_raft_leads", NUMBER,
        "Whether the node leads its cluster"),
    row("raft_has_leader", Gauge, "lockwheel_raft_has_leader", NUMBER,
        "Whether the node has a leader, or leads"),
    row("raft_term", Gauge, "lockwheel_raft_term", NUMBER, "Term of the node"),
    row("raft_leader_changes", Counter, "lockwheel_raft_leader_changes", NUMBER,
        "Changes of the leader that the node has seen"),
    row("raft_lag_entries", Gauge, "lockwheel_raft_lag_entries", NUMBER,
        "Log entries that the slowest follower in contact lacks; on a follower, those not applied"),
    row("raft_nodes", Gauge, "lockwheel_raft_nodes", NUMBER, "Nodes of the cluster"),
    row("raft_nodes_in_contact", Gauge, "lockwheel_raft_nodes_in_contact", NUMBER,
        "Nodes that the leader is in contact with, itself included; only on the leader"),
    row("raft_rounds", Counter, "lockwheel_raft_rounds", NUMBER,
        "Rounds of replication while the node has led"),
    row("raft_commits", Counter, "lockwheel_raft_commits", NUMBER,
        "Changes that these rounds have replicated"),
    row("rdb_last_bgsave_status", IsOk, "lockwheel_snapshot_last_ok", NUMBER,
        "Whether the last snapshot succeeded"),
];

/// What `INFO` has replied.
#[derive(Debug)]
struct Snapshot {
    info: BTreeMap<String, String>,
    /// The distribution of the times of each command: upper bounds in microseconds, and how many
    /// calls took no longer.
    times: BTreeMap<String, Vec<(u64, u64)>>,
}

/// The text of `/metrics`.
///
/// # Errors
/// If a reply is not of its kind: the text for the reader.
pub(super) fn write(info: &Reply, histograms: &Reply) -> Result<String, String> {
    let snapshot = Snapshot {
        info: fields(info).ok_or("INFO has no text")?,
        times: times(histograms).ok_or("LATENCY HISTOGRAM has no map")?,
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| error.to_string())?;
    Ok(text)
}

/// The fields of `INFO`.
pub(crate) fn fields(info: &Reply) -> Option<BTreeMap<String, String>> {
    let (Reply::Verbatim { text, .. } | Reply::Bulk(text)) = info else { return None };
    let text = String::from_utf8_lossy(text);
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    Some(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The distributions in the reply of `LATENCY HISTOGRAM`.
fn times(histograms: &Reply) -> Option<BTreeMap<String, Vec<(u64, u64)>>> {
    let Reply::Map(commands) = histograms else { return None };
    let mut times = BTreeMap::new();
    for (command, figures) in commands {
        let (Reply::Bulk(command), Reply::Map(figures)) = (command, figures) else { return None };
        for (_, figure) in figures {
            let Reply::Map(buckets) = figure else { continue };
            let pairs = buckets.iter().map(|pair| match pair {
                (Reply::Integer(bound), Reply::Integer(count)) => {
                    Some((u64::try_from(*bound).ok()?, u64::try_from(*count).ok()?))
                }
                _ => None,
            });
            let pairs: Option<Vec<(u64, u64)>> = pairs.collect();
            times.insert(String::from_utf8_lossy(command).into_owned(), pairs?);
        }
    }
    Some(times)
}

impl Collector for Snapshot {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        self.server(&mut out)?;
        for figure in FIGURES {
            self.figure(figure, &mut out)?;
        }
        self.rounds(&mut out)?;
        self.processor_time(&mut out)?;
        self.keys(&mut out)?;
        self.errors(&mut out)?;
        self.commands(&mut out)
    }
}

impl Snapshot {
    fn text(&self, field: &str) -> &str {
        self.info.get(field).map_or("", |text| text)
    }

    /// The version and the mode.
    fn server(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let labels = [
            ("version", self.text("lockwheel_version")),
            ("redis_version", self.text("redis_version")),
            ("mode", self.text("redis_mode")),
        ];
        let help = "The server";
        let mut metric = out.encode_descriptor("lockwheel_server", help, None, MetricType::Info)?;
        metric.encode_info(&labels)
    }

    fn figure(&self, figure: &Figure, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(text) = self.info.get(figure.field) else { return Ok(()) };
        let Figure { kind, name, help, .. } = *figure;
        let number: f64 = match kind {
            IsOk => f64::from(u8::from(text == "ok")),
            _ => text.parse().unwrap_or(f64::NAN),
        };
        let unit = figure.unit.as_ref();
        if kind == Counter {
            let metric = out.encode_descriptor(name, help, unit, MetricType::Counter)?;
            ConstCounter::new(number).encode(metric)
        } else {
            let metric = out.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(number).encode(metric)
        }
    }

    /// How long the rounds of replication have taken up to each moment.
    fn rounds(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut moments = self.starting_with("raft_moment_").peekable();
        if moments.peek().is_none() {
            return Ok(());
        }
        let help = "Time from the first change of a round to the moment, summed over all rounds";
        let unit = Some(&Unit::Seconds);
        let mut metrics =
            out.encode_descriptor("lockwheel_raft_round", help, unit, MetricType::Counter)?;
        for (moment, value) in moments {
            let counter = ConstCounter::new(number_of(value, "usec") / 1e6);
            family(&mut metrics, ("moment", moment), &counter)?;
        }
        Ok(())
    }

    fn processor_time(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Processor time of the process";
        let metric =
            out.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
        let seconds = |field| self.text(field).parse().unwrap_or(f64::NAN);
        let sum: f64 = seconds("used_cpu_sys") + seconds("used_cpu_user");
        ConstCounter::new(sum).encode(metric)
    }

    /// The keys of each database, and those with a deadline.
    fn keys(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let figures = [
            ("keys", "lockwheel_keys", "Keys"),
            ("expires", "lockwheel_leases", "Keys with a deadline"),
        ];
        for (part, name, help) in figures {
            let mut metrics = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (database, value) in self.starting_with("db") {
                if database.parse::<u32>().is_ok() {
                    let gauge = ConstGauge::new(number_of(value, part));
                    family(&mut metrics, ("database", database), &gauge)?;
                }
            }
        }
        Ok(())
    }

    /// The error replies by their code.
    fn errors(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Error replies by their code";
        let mut metrics = out.encode_descriptor(
            "lockwheel_error_replies_by_code",
            help,
            None,
            MetricType::Counter,
        )?;
        for (code, value) in self.starting_with("errorstat_") {
            let counter = ConstCounter::new(number_of(value, "count"));
            family(&mut metrics, ("code", code), &counter)?;
        }
        Ok(())
    }

    /// The times of each command, and how often it was refused or failed.
    fn commands(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that the command ran; without waiting";
        let unit = Some(&Unit::Seconds);
        let mut metrics =
            out.encode_descriptor("lockwheel_command_time", help, unit, MetricType::Histogram)?;
        for (command, value) in self.starting_with("cmdstat_") {
            let (sum, count) = (number_of(value, "usec") / 1e6, number_of(value, "calls"));
            let buckets = buckets(self.times.get(command).map_or(&[], |times| times));
            let labels = [("command", command)];
            let mut metric = metrics.encode_family(&labels)?;
            // A count of calls is not negative.
            metric.encode_histogram::<NoLabelSet>(sum, count as u64, &buckets, None)?;
        }
        let figures = [
            (
                "rejected_calls",
                "lockwheel_command_rejected",
                "Calls that were refused before they ran",
            ),
            ("failed_calls", "lockwheel_command_failed", "Calls that ended with an error"),
        ];
        for (part, name, help) in figures {
            let mut metrics = out.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (command, value) in self.starting_with("cmdstat_") {
                let counter = ConstCounter::new(number_of(value, part));
                family(&mut metrics, ("command", command), &counter)?;
            }
        }
        Ok(())
    }

    /// The fields with this prefix, without it.
    fn starting_with<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let fields = self.info.range(prefix.to_owned()..);
        fields.map_while(move |(name, value)| Some((name.strip_prefix(prefix)?, &**value)))
    }
}

/// Encodes one member of a family.
fn family(
    metrics: &mut MetricEncoder<'_>,
    label: (&str, &str),
    metric: &(impl EncodeMetric + TypedMetric),
) -> fmt::Result {
    metric.encode(metrics.encode_family(&[label])?)
}

/// A number among the parts of a field, such as `calls=1,usec=2`.
fn number_of(value: &str, part: &str) -> f64 {
    let mut parts = value.split(',').filter_map(|part| part.split_once('='));
    let found = parts.find(|(name, _)| *name == part);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(f64::NAN)
}

/// The distribution with the same bounds for every command, so that those of several commands and
/// servers can be added: the powers of two of microseconds up to one second. Each bucket has the
/// calls since the bound before.
fn buckets(times: &[(u64, u64)]) -> Vec<(f64, u64)> {
    let mut before = 0;
    let mut buckets: Vec<(f64, u64)> = (0..=BOUNDS)
        .map(|power| {
            let bound_us = 1_u64 << power;
            let until = times.iter().rev().find(|&&(bound, _)| bound <= bound_us);
            let count = until.map_or(0, |&(_, count)| count);
            let calls = count - before;
            before = count;
            (bound_us as f64 / 1e6, calls)
        })
        .collect();
    let all = times.last().map_or(0, |&(_, count)| count);
    buckets.push((f64::INFINITY, all - before));
    buckets
}

/// The greatest power of two among the bounds.
const BOUNDS: u32 = 20;
