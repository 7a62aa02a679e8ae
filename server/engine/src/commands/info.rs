//! `INFO`: the state and counters of the server, for operators, clients and metrics exporters. The
//! names of sections and fields are Redis's; fields of features that this server does not have are
//! 0.

use std::fmt::{self, Display, Write};

use lockwheel_resp::Reply;

use crate::Engine;
use crate::acl::Reason;
use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, CommandStats, Flags, Group, is};
use crate::durability::readiness::{Loading, Role};
use crate::engine::inputs::CpuTimes;
use crate::error::Error;
use crate::replication::nodes::{Address, Follower, Nodes};
use crate::run::context::Context;
use crate::settings::{AllocatorUsage, LOCKWHEEL_VERSION, Mode, directive};
use crate::store::Database;
use crate::store::lock_notes::{LockEventKind, LockNotes};
use crate::timing::time::Time;

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "info",
    arity: Arity::AtLeast(1),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::SHOWS_LOADING),
    categories: Categories::DANGEROUS,
    group: Group::Server,
    doc: "Returns facts and counters of the server, by section.",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[arg::string("section").optional().multiple()],
    example: "INFO cluster => \"# Cluster\\r\\ncluster_enabled:0\\r\\n\"",
    run: info,
    ..Command::BASE
}];

/// A section of the reply.
struct Section {
    title: &'static str,
    /// Whether a request without section names includes it.
    by_default: bool,
    fields: fn(&mut Context<'_>, &mut Fields),
}

const fn section(title: &'static str, fields: fn(&mut Context<'_>, &mut Fields)) -> Section {
    Section { title, by_default: true, fields }
}

/// Sections in the order of the reply, whatever the order of the request.
const SECTIONS: &[Section] = &[
    section("Server", server),
    section("Clients", clients),
    section("Memory", memory),
    section("Persistence", persistence),
    section("Stats", stats),
    section("Replication", replication),
    section("CPU", cpu),
    section("Modules", |_, _| {}),
    Section { by_default: false, ..section("Commandstats", command_stats) },
    section("Errorstats", error_stats),
    Section { by_default: false, ..section("Latencystats", latency_stats) },
    section("Cluster", cluster),
    section("Keyspace", keyspace),
    section("Sentinel", |context, fields| {
        fields.0.push_str(&super::sentinel::info(context.engine()));
    }),
    Section { by_default: false, ..section(LOCKWHEEL_SECTION, lockwheel) },
];

/// Name of the section that no other server has, which is included only if it is requested by name.
const LOCKWHEEL_SECTION: &str = "Lockwheel";

/// The sections of a sentinel.
const SECTIONS_OF_SENTINEL: &[&str] = &["Server", "Clients", "Stats", "CPU", "Sentinel"];

/// Whether a server in this mode has the section.
fn is_of(mode: Mode, section: &Section) -> bool {
    match mode {
        Mode::Sentinel => SECTIONS_OF_SENTINEL.contains(&section.title),
        _ => section.title != "Sentinel",
    }
}

/// A share, as Redis writes it.
struct Percent(f64);

impl Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.2}%", self.0)
    }
}

/// The lines of a section.
struct Fields(String);

impl Fields {
    fn add(&mut self, name: &str, value: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    fn zeros(&mut self, names: &[&str]) {
        for name in names {
            self.add(name, 0);
        }
    }

    /// A number of bytes, once as a number and once in a human-readable form.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(&format!("{name}_human"), human_readable(bytes));
    }
}

/// `INFO`: replies with the sections as text.
fn info(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let wanted = |section: &Section| match &argv[1..] {
        [] => section.by_default,
        names => names.iter().any(|name| {
            is(name, section.title)
                || is(name, "all") && section.title != LOCKWHEEL_SECTION
                || is(name, "everything") && section.title != LOCKWHEEL_SECTION
                || is(name, "default") && section.by_default
        }),
    };
    let mut text = String::new();
    let mode = context.settings().mode();
    for section in SECTIONS.iter().filter(|section| wanted(section) && is_of(mode, section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut fields = Fields(format!("# {}\r\n", section.title));
        (section.fields)(context, &mut fields);
        text.push_str(&fields.0);
    }
    // A sentinel replies with a bulk string, as in Redis.
    Ok(if mode == Mode::Sentinel { Reply::bulk(text) } else { super::text(text) })
}

fn server(context: &mut Context<'_>, fields: &mut Fields) {
    let (engine, time) = (context.engine(), context.time);
    let process = &engine.process;
    // The lease clock of a node is that of its cluster.
    let uptime_seconds = match engine.settings.is_node() {
        true => (process.clock_ns)().saturating_sub(process.started_ns) / 1_000_000_000,
        false => (time.now.0 - engine.started_at.0).max(0).unsigned_abs() / 1000,
    };
    let version = engine.settings.compat_version;
    fields.add("redis_version", version.redis_version());
    match version.valkey_version() {
        None => fields.add("server_name", "lockwheel"),
        Some(valkey) => {
            fields.add("server_name", "valkey");
            fields.add("valkey_version", valkey);
        }
    }
    fields.add("lockwheel_version", LOCKWHEEL_VERSION);
    fields.add("redis_git_sha1", "00000000");
    fields.add("redis_git_dirty", 0);
    fields.add("redis_build_id", "0");
    let mode_field = if version.valkey_version().is_some() { "server_mode" } else { "redis_mode" };
    fields.add(mode_field, engine.settings.mode().name());
    fields.add("os", format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    fields.add("arch_bits", usize::BITS);
    fields.add("monotonic_clock", "POSIX clock_gettime");
    fields.add("multiplexing_api", if cfg!(target_os = "linux") { "epoll" } else { "kqueue" });
    fields.add("process_id", engine.process.id);
    fields.add("process_supervised", engine.settings.get(directive::SUPERVISED).name());
    fields.add("run_id", &engine.run_id);
    let tcp_port = match engine.settings.port {
        0 => engine.settings.get(directive::TLS_PORT),
        port => port,
    };
    fields.add("tcp_port", tcp_port);
    fields.add("server_time_usec", time.wall_us);
    fields.add("uptime_in_seconds", uptime_seconds);
    fields.add("uptime_in_days", uptime_seconds / (24 * 60 * 60));
    fields.add("hz", engine.settings.hz);
    fields.add("configured_hz", engine.settings.hz);
    fields.add("lru_clock", time.wall_us.div_euclid(1_000_000) & LRU_CLOCK_MAX);
    fields.add("executable", &engine.process.executable);
    fields.add("config_file", engine.settings.config_file.as_deref().unwrap_or_default());
    fields.add("io_threads_active", u8::from(engine.settings.get(directive::IO_THREADS) != 1));
}

fn clients(context: &mut Context<'_>, fields: &mut Fields) {
    let peaks = context.recent_buffer_peaks();
    let engine = context.engine();
    let all = &engine.sessions.clients;
    let connected = all.iter().filter(|client| !client.origin.is_monitoring).count();
    fields.add("connected_clients", connected);
    fields.add("cluster_connections", 0);
    fields.add("maxclients", engine.settings.maxclients);
    fields.add("client_recent_max_input_buffer", peaks.input);
    fields.add("client_recent_max_output_buffer", peaks.output);
    fields.add("blocked_clients", all.iter().filter(|c| c.blocked.is_some()).count());
    fields.add("tracking_clients", engine.sessions.tracked.clients());
    fields.add("pubsub_clients", all.iter().filter(|c| c.is_subscriber()).count());
    fields.add("watching_clients", all.iter().filter(|c| !c.watched.is_empty()).count());
    let waits = all.iter().filter_map(|c| c.blocked.as_ref());
    fields.add("clients_in_timeout_table", waits.filter(|wait| wait.has_deadline()).count());
    fields.add("total_blocking_keys", engine.sessions.waiters.keys());
    fields.add("total_blocking_keys_on_nokey", engine.sessions.waiters.keys_with_wake_if_gone());
}

/// The bits of Redis's clock in seconds.
pub(super) const LRU_CLOCK_MAX: i64 = (1 << 24) - 1;

fn memory(context: &mut Context<'_>, fields: &mut Fields) {
    let peak = context.peak_memory_bytes();
    let engine = context.engine();
    let used = engine.used_memory_bytes() as u64;
    let dataset = engine.dataset_bytes() as u64;
    let max = engine.settings.maxmemory_bytes;
    let process = (engine.process.usage)();
    // If the system does not report it, it is at least the memory that is used.
    let resident = process.resident_bytes.unwrap_or(used);
    let percent = |part: u64, whole: u64| Percent(part as f64 * 100.0 / whole.max(1) as f64);
    let functions = engine.writer.libraries();
    let functions = functions.map_or((0, 0), |all| (all.count(), all.libraries().len()));
    let scripts = engine.interpreter.as_ref().map_or(0, |interpreter| interpreter.len());
    let (script_bytes, function_bytes) = (engine.script_bytes(), engine.function_bytes());
    let lua_bytes = engine.interpreter.as_ref().map_or(0, |lua| lua.lua_bytes());
    fields.bytes("used_memory", used);
    fields.bytes("used_memory_rss", resident);
    fields.bytes("used_memory_peak", peak);
    fields.add("used_memory_peak_perc", percent(used, peak));
    fields.add("used_memory_overhead", used - dataset);
    fields.add("used_memory_startup", 0);
    fields.add("used_memory_dataset", dataset);
    fields.add("used_memory_dataset_perc", percent(dataset, used));
    let allocator = (engine.settings.allocator.usage)();
    if let Some(AllocatorUsage { allocated, active, resident }) = allocator {
        fields.add("allocator_allocated", allocated);
        fields.add("allocator_active", active);
        fields.add("allocator_resident", resident);
    }
    if let Some(bytes) = process.machine_bytes {
        fields.bytes("total_system_memory", bytes);
    }
    fields.bytes("used_memory_lua", lua_bytes as u64);
    fields.add("used_memory_vm_eval", lua_bytes);
    fields.add("used_memory_scripts_eval", script_bytes);
    fields.add("number_of_cached_scripts", scripts);
    fields.add("number_of_functions", functions.0);
    fields.add("number_of_libraries", functions.1);
    fields.add("used_memory_vm_functions", function_bytes);
    fields.bytes("used_memory_vm_total", (lua_bytes + function_bytes) as u64);
    fields.add("used_memory_functions", function_bytes);
    fields.bytes("used_memory_scripts", (script_bytes + function_bytes) as u64);
    fields.bytes("maxmemory", max);
    fields.add("maxmemory_policy", engine.settings.maxmemory_policy.name());
    let mut excess = |names: [&str; 2], more: u64, less: u64| {
        fields.add(names[0], format_args!("{:.2}", more as f64 / less.max(1) as f64));
        fields.add(names[1], i128::from(more) - i128::from(less));
    };
    let mut allocated_bytes = used;
    if let Some(AllocatorUsage { allocated, active, resident: mapped }) = allocator {
        allocated_bytes = allocated;
        excess(["allocator_frag_ratio", "allocator_frag_bytes"], active, allocated);
        excess(["allocator_rss_ratio", "allocator_rss_bytes"], mapped, active);
        excess(["rss_overhead_ratio", "rss_overhead_bytes"], resident, mapped);
    }
    excess(["mem_fragmentation_ratio", "mem_fragmentation_bytes"], resident, allocated_bytes);
    fields.zeros(&["mem_not_counted_for_evict", "mem_replication_backlog"]);
    fields.zeros(&["mem_total_replication_buffers", "mem_clients_slaves"]);
    fields.add("mem_clients_normal", engine.sessions.clients.memory_bytes());
    fields.zeros(&["mem_cluster_links"]);
    fields.add("mem_aof_buffer", engine.log_buffer_bytes());
    fields.add("mem_allocator", engine.settings.allocator.name);
    fields.add("active_defrag_running", 0);
    let garbage = engine.writer.keyspace().garbage();
    fields.add("lazyfree_pending_objects", garbage.pending_objects());
    fields.add("lazyfreed_objects", garbage.freed_objects);
}

fn persistence(context: &mut Context<'_>, fields: &mut Fields) {
    let (engine, time) = (context.engine(), context.time);
    let persistence = &engine.persistence;
    let is_saving = u8::from(persistence.began_at.is_some());
    let status = if persistence.last_succeeded { "ok" } else { "err" };
    let last = persistence.last_duration.map_or(-1, |span| span.0 / 1000);
    let current = persistence.began_at.map_or(-1, |begin| (time.now.0 - begin.0) / 1000);
    let has_log = u8::from(engine.has_log());
    fields.add("loading", u8::from(!engine.is_ready() && !engine.is_following()));
    fields.zeros(&["async_loading"]);
    if let Role::Loading(loading) = engine.role() {
        loading_progress(loading, time, fields);
    }
    fields.zeros(&["current_cow_peak", "current_cow_size", "current_cow_size_age"]);
    fields.add("current_fork_perc", "0.00");
    let unsaved = engine.writer.dirty() - persistence.saved_changes;
    fields.add("rdb_changes_since_last_save", unsaved);
    fields.add("rdb_bgsave_in_progress", is_saving);
    fields.add("rdb_last_save_time", persistence.last_save_seconds);
    fields.add("rdb_last_bgsave_status", status);
    fields.add("rdb_last_bgsave_time_sec", last);
    fields.add("rdb_current_bgsave_time_sec", current);
    fields.add("rdb_saves", persistence.saves);
    fields.zeros(&["rdb_last_cow_size", "rdb_last_load_keys_expired"]);
    fields.add("rdb_last_load_keys_loaded", persistence.loaded_keys);
    fields.add("aof_enabled", has_log);
    fields.add("aof_rewrite_in_progress", is_saving);
    fields.zeros(&["aof_rewrite_scheduled"]);
    fields.add("aof_last_rewrite_time_sec", last);
    fields.add("aof_current_rewrite_time_sec", current);
    fields.add("aof_last_bgrewrite_status", status);
    fields.add("aof_rewrites", persistence.saves);
    fields.add("aof_rewrites_consecutive_failures", persistence.failures);
    let status = if engine.growth.disk_is_full { "err" } else { "ok" };
    fields.add("aof_last_write_status", status);
    fields.zeros(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
    if engine.has_log() {
        fields.add("aof_current_size", persistence.snapshot_bytes + persistence.segment_bytes);
        fields.add("aof_base_size", persistence.snapshot_bytes);
        fields.add("aof_pending_rewrite", 0);
        fields.add("aof_buffer_length", engine.log_buffer_bytes());
        fields.add("aof_pending_bio_fsync", 0);
        fields.add("aof_delayed_fsync", 0);
    }
}

fn loading_progress(loading: &Loading, time: Time, fields: &mut Fields) {
    let Loading { began, total_bytes, loaded_bytes, .. } = *loading;
    let share = loaded_bytes as f64 / total_bytes.max(1) as f64;
    let elapsed_seconds = (time.now.0 - began.now.0) as f64 / 1000.0;
    let left_seconds = if share > 0.0 { elapsed_seconds / share - elapsed_seconds } else { 1.0 };
    fields.add("loading_start_time", began.wall_us.div_euclid(1_000_000));
    fields.add("loading_total_bytes", total_bytes);
    fields.add("loading_rdb_used_mem", 0);
    fields.add("loading_loaded_bytes", loaded_bytes);
    fields.add("loading_loaded_perc", format_args!("{:.2}", share * 100.0));
    fields.add("loading_eta_seconds", left_seconds.ceil());
}

fn stats(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    let (stats, traffic, rates) = (&engine.stats, &engine.traffic, engine.rates());
    let kib = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    fields.add("total_connections_received", stats.connections_received);
    fields.add("total_commands_processed", engine.commands_processed());
    fields.add("instantaneous_ops_per_sec", rates.commands.round());
    fields.add("total_net_input_bytes", traffic.input_bytes());
    fields.add("total_net_output_bytes", traffic.output_bytes());
    fields.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    fields.add("instantaneous_input_kbps", kib(rates.input_bytes));
    fields.add("instantaneous_output_kbps", kib(rates.output_bytes));
    fields.add("instantaneous_input_repl_kbps", "0.00");
    fields.add("instantaneous_output_repl_kbps", "0.00");
    fields.add("rejected_connections", stats.rejected_connections);
    fields.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    fields.add("expired_keys", stats.expired_keys);
    fields.add("expired_stale_perc", "0.00");
    fields.zeros(&["expired_time_cap_reached_count"]);
    fields.add("expire_cycle_cpu_milliseconds", stats.expire_ns / 1_000_000);
    fields.zeros(&["evicted_keys"]);
    fields.add("evicted_clients", stats.evicted_clients);
    fields.zeros(&["total_eviction_exceeded_time", "current_eviction_exceeded_time"]);
    fields.add("keyspace_hits", stats.keyspace_hits);
    fields.add("keyspace_misses", stats.keyspace_misses);
    fields.add("pubsub_channels", engine.sessions.pubsub.channels.len());
    fields.add("pubsub_patterns", engine.sessions.pubsub.patterns.len());
    fields.add("pubsubshard_channels", engine.sessions.pubsub.shard_channels.len());
    fields.zeros(&["latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    fields.zeros(&["slave_expires_tracked_keys", "active_defrag_hits", "active_defrag_misses"]);
    fields.zeros(&["active_defrag_key_hits", "active_defrag_key_misses"]);
    fields.zeros(&["total_active_defrag_time", "current_active_defrag_time"]);
    fields.add("tracking_total_keys", engine.sessions.tracked.keys());
    fields.add("tracking_total_items", engine.sessions.tracked.reads());
    fields.add("tracking_total_prefixes", engine.sessions.tracked.prefixes());
    fields.add("unexpected_error_replies", 0);
    fields.add("total_error_replies", stats.total_error_replies);
    fields.zeros(&["dump_payload_sanitizations"]);
    // As in Redis, reads and writes of I/O threads are also counted separately.
    let is_threaded = u64::from(engine.settings.get(directive::IO_THREADS) != 1);
    fields.add("total_reads_processed", traffic.reads());
    fields.add("total_writes_processed", traffic.writes());
    fields.add("io_threaded_reads_processed", traffic.reads() * is_threaded);
    fields.add("io_threaded_writes_processed", traffic.writes() * is_threaded);
    fields.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    let refusals = &engine.access.log;
    fields.add("acl_access_denied_auth", refusals.count(Reason::Authentication));
    fields.add("acl_access_denied_cmd", refusals.count(Reason::Command));
    fields.add("acl_access_denied_key", refusals.count(Reason::Key));
    fields.add("acl_access_denied_channel", refusals.count(Reason::Channel));
}

fn replication(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    if engine.is_following() {
        following(&engine.nodes, fields);
        fields.add("connected_slaves", 0);
    } else {
        fields.add("role", "master");
        fields.add("connected_slaves", engine.nodes.in_contact().count());
        for (at, Follower { address, acknowledged, .. }) in engine.nodes.in_contact().enumerate() {
            let Address { host, port } = address;
            let line =
                format_args!("ip={host},port={port},state=online,offset={acknowledged},lag=0");
            fields.add(&format!("slave{at}"), line);
        }
    }
    fields.add("master_failover_state", "no-failover");
    fields.add("master_replid", &engine.replication_id);
    fields.add("master_replid2", "0".repeat(engine.run_id.len()));
    fields.add("master_repl_offset", engine.replication_offset());
    fields.add("second_repl_offset", -1);
    fields.zeros(&["repl_backlog_active", "repl_backlog_size"]);
    fields.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}

/// The fields of a replica.
fn following(nodes: &Nodes, fields: &mut Fields) {
    let leader = nodes.leader.clone().unwrap_or_default();
    fields.add("role", "slave");
    fields.add("master_host", &leader.host);
    fields.add("master_port", leader.port);
    fields.add("master_link_status", if nodes.leader.is_some() { "up" } else { "down" });
    let seconds = if nodes.leader.is_some() { 0 } else { -1 };
    fields.add("master_last_io_seconds_ago", seconds);
    fields.zeros(&["master_sync_in_progress", "slave_read_repl_offset", "slave_repl_offset"]);
    fields.add("slave_priority", 100);
    fields.add("slave_read_only", 1);
    fields.add("replica_announced", 1);
}

/// Adds the times of processors, which only the operating system has.
fn cpu(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    let usage = (engine.process.usage)();
    let mut add = |suffix: &str, times: Option<CpuTimes>| {
        let Some(CpuTimes { system_us, user_us }) = times else { return };
        for (name, us) in [("used_cpu_sys", system_us), ("used_cpu_user", user_us)] {
            let (seconds, us) = (us / 1_000_000, us % 1_000_000);
            fields.add(&format!("{name}{suffix}"), format_args!("{seconds}.{us:06}"));
        }
    };
    add("", Some(usage.process.unwrap_or_default()));
    add("_children", Some(usage.children.unwrap_or_default()));
    add("_main_thread", usage.main_thread);
}

fn command_stats(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    for (entry, stats) in engine.commands.entries().iter().zip(&engine.command_stats) {
        let CommandStats { calls, rejected, failed, times } = stats;
        if calls + rejected + failed == 0 {
            continue;
        }
        let per_call_us = times.total_ns as f64 / 1_000.0 / (*calls).max(1) as f64;
        fields.add(
            &format!("cmdstat_{}", entry.full_name),
            format_args!(
                "calls={calls},usec={},usec_per_call={per_call_us:.2},rejected_calls={rejected},\
                 failed_calls={failed}",
                times.total_ns / 1_000
            ),
        );
    }
}

fn latency_stats(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    if !engine.settings.latency_tracking {
        return;
    }
    for (entry, stats) in engine.commands.entries().iter().zip(&engine.command_stats) {
        let Some(histogram) = stats.times.histogram() else { continue };
        let percentile = |name: &String| {
            // The directive was checked when it was set.
            let number = name.parse().unwrap_or(0.0);
            let us = histogram.value_at_percentile(number) as f64 / 1_000.0;
            format!("p{number}={us:.3}")
        };
        let percentiles: Vec<_> =
            engine.settings.latency_percentiles.iter().map(percentile).collect();
        fields.add(&format!("latency_percentiles_usec_{}", entry.full_name), percentiles.join(","));
    }
}

fn error_stats(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    for (code, count) in &engine.stats.errors {
        fields.add(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn cluster(context: &mut Context<'_>, fields: &mut Fields) {
    let engine = context.engine();
    fields.add("cluster_enabled", u8::from(engine.settings.cluster_enabled));
}

/// How often scripts have been run by a plan, by a plan and then by Lua, and by Lua alone; and how
/// often the result of Lua differed from that of the plan, which is a defect. How many keys
/// expire, and how long after their deadlines they are removed: clients see none of them meanwhile.
fn lockwheel(context: &mut Context<'_>, fields: &mut Fields) {
    let (engine, time) = (context.engine(), context.time);
    let tiers = engine.interpreter.as_ref().map(|lua| lua.tiers()).unwrap_or_default();
    fields.add("scripts_planned", tiers.planned);
    fields.add("scripts_left_to_lua", tiers.left);
    fields.add("scripts_of_lua", tiers.lua);
    fields.add("scripts_disagreed", tiers.disagreed);
    let (left_ms, reason) = engine
        .guard()
        .map_or((0, ""), |guard| (time.remaining(guard.until).0, guard.reason.as_str()));
    let (rates, stats) = (engine.rates(), &engine.stats);
    fields.add("expired_keys_per_second", format_args!("{:.2}", rates.expired_keys));
    let mean_ms = stats.expired_late_ms as f64 / stats.expired_keys.max(1) as f64;
    fields.add("expired_late_mean_ms", format_args!("{mean_ms:.3}"));
    fields.add("expired_late_max_ms", stats.expired_late_ms_max);
    fields.add("restart_guard_left_ms", left_ms);
    fields.add("restart_guard_reason", reason);
    locks(engine, fields);
    if engine.settings.is_node() {
        raft(engine, fields);
    }
}

/// The figures of a node. Those of followers are known to the leader only.
fn raft(engine: &Engine, fields: &mut Fields) {
    let nodes = &engine.nodes;
    let leads = !engine.is_following();
    let leader = nodes.leader.as_ref().map(|Address { host, port }| format!("{host}:{port}"));
    let others = nodes.followers.len() + usize::from(nodes.leader.is_some());
    fields.add("raft_role", if leads { "leader" } else { "follower" });
    fields.add("raft_leads", u8::from(leads));
    fields.add("raft_leader", leader.unwrap_or_default());
    fields.add("raft_has_leader", u8::from(nodes.leader.is_some()));
    fields.add("raft_term", nodes.term);
    fields.add("raft_leader_changes", nodes.leader_changes);
    fields.add("raft_lag_entries", nodes.lag_entries);
    fields.add("raft_nodes", others);
    if leads {
        fields.add("raft_nodes_in_contact", nodes.in_contact().count() + 1);
    }
    rounds(engine, fields);
}

/// The rounds of replication of a node while it has led.
fn rounds(engine: &Engine, fields: &mut Fields) {
    let (rounds, rates) = (&engine.nodes.rounds, engine.rates());
    fields.add("raft_rounds", rounds.count);
    fields.add("raft_commits", rounds.units);
    fields.add("raft_rounds_per_second", format_args!("{:.2}", rates.rounds));
    fields.add("raft_commits_per_second", format_args!("{:.2}", rates.commits));
    for (moment, sum_us) in &rounds.moments_us {
        let mean_us = *sum_us as f64 / rounds.count.max(1) as f64;
        fields.add(
            &format!("raft_moment_{moment}"),
            format_args!("usec={sum_us},usec_per_round={mean_us:.2}"),
        );
    }
}

/// The figures of the lock view, which include keys that only may be locks, and of native locks.
fn locks(engine: &Engine, fields: &mut Fields) {
    let notes = engine.writer.lock_notes();
    let count = |kind| notes.map_or(0, |notes| notes.count(kind));
    fields.add("lock_view", u8::from(notes.is_some()));
    fields.add("lock_view_bytes", notes.map_or(0, LockNotes::memory_bytes));
    fields.add("locks_held", notes.map_or(0, LockNotes::len));
    fields.add("locks_acquired", count(LockEventKind::Acquired));
    fields.add("locks_renewed", count(LockEventKind::Renewed));
    fields.add("locks_released", count(LockEventKind::Released));
    fields.add("locks_expired", count(LockEventKind::Expired));
    fields.add("locks_refused", count(LockEventKind::Refused));
    fields.add("locks_forced", count(LockEventKind::Forced));
    fields.add("native_locks_waiting_clients", engine.sessions.waiters.for_locks());
    fields.add("last_fencing_token", engine.writer.last_token());
}

fn keyspace(context: &mut Context<'_>, fields: &mut Fields) {
    let (engine, time) = (context.engine(), context.time);
    for number in 0..engine.writer.keyspace().count() {
        let database = engine.writer.keyspace().database(number);
        if database.is_empty() {
            continue;
        }
        fields.add(
            &format!("db{number}"),
            format_args!(
                "keys={},expires={},avg_ttl={}",
                database.len(),
                database.with_deadline(),
                average_ttl_ms(database, time)
            ),
        );
    }
}

/// The number of keys from which the average time to live is estimated, so that `INFO` takes no
/// longer with more keys.
const TTLS_SAMPLED: usize = 100;

fn average_ttl_ms(database: &Database, time: Time) -> i64 {
    let (slots, _) = database.records().scan(0, TTLS_SAMPLED);
    let (sum, count) = slots
        .filter_map(|slot| database.record(slot).deadline())
        .map(|deadline| i128::from(time.remaining(deadline).0))
        .fold((0, 0), |(sum, count), ttl| (sum + ttl, count + 1));
    i64::try_from(i128::checked_div(sum, count).unwrap_or(0)).unwrap_or(i64::MAX)
}

fn human_readable(bytes: u64) -> String {
    const UNITS: [(u64, char); 4] =
        [(1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match UNITS.into_iter().find(|&(size, _)| bytes >= size) {
        Some((size, letter)) => format!("{:.2}{letter}", bytes as f64 / size as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::human_readable;
    use crate::settings::{Settings, directive};
    use crate::testing::{Stage, check};

    #[test]
    fn sections_are_selected() {
        check("INFO foo => \"\"; INFO modules => \"# Modules\\r\\n\"");
        check(
            "INFO KEYSPACE cluster modules => \
               \"# Modules\\r\\n\\r\\n# Cluster\\r\\ncluster_enabled:0\\r\\n\\r\\n\
               # Keyspace\\r\\n\"",
        );
        check(
            "INFO => \"# Server\\r\\nredis_version:7.2.4\\r\\n...# Clients...# Memory...\
               # Persistence\\r\\nloading:0...# Stats...# Replication\\r\\nrole:master...# CPU...\
               # Modules...# Errorstats...# Cluster...# Keyspace\\r\\n\"",
        );
        check("INFO all => ...# Commandstats...; INFO everything => ...# Commandstats...");
        check(
            "CONFIG SET latency-tracking-info-percentiles \"50.0 99.90\"; GET k; \
             CONFIG GET latency-tracking-info-percentiles => \
             [\"latency-tracking-info-percentiles\", \"50 99.9\"]; \
             INFO latencystats => \
             ...\\nlatency_percentiles_usec_get:p50=0.001,p99.9=0.001\\r\\n...; \
             CONFIG SET latency-tracking no; INFO latencystats => \"# Latencystats\\r\\n\"",
        );
        check("INFO default cluster => ...# Modules\\r\\n\\r\\n# Errorstats...");
        check("HELLO 3; INFO modules => =# Modules...");
        check(
            "EVAL \"return 1\" 0; EVAL \"return {err = 'X no'}\" 0 => !X no; \
             EVAL \"return 0x1\" 0; \
             INFO lockwheel => ...scripts_planned:1\\r\\n\
             scripts_left_to_lua:1\\r\\nscripts_of_lua:1\\r\\nscripts_disagreed:0\\r\\n\
             expired_keys_per_second:0.00\\r\\nexpired_late_mean_ms:0.000\\r\\n\
             expired_late_max_ms:0\\r\\nrestart_guard_left_ms:0\\r\\nrestart_guard_reason:\\r\\n\
             lock_view:1\\r\\n...",
        );
    }

    #[test]
    fn counters_are_shown() {
        check(
            "SET k v PX 1000; SET l w; SELECT 2; SET k v; INFO keyspace => \
               \"# Keyspace\\r\\ndb0:keys=2,expires=1,avg_ttl=1000\\r\\n\
               db2:keys=1,expires=0,avg_ttl=0\\r\\n\"",
        );
        check("GET k; SET k v; GET k; INFO stats => ...keyspace_hits:1\\r\\nkeyspace_misses:1...");
        check("SET k v PX 1; +1ms; INFO stats => ...expired_keys:1\\r\\n...");
        check(
            "b> WAIT 1 0; +90000ms; INFO server clients => \
               ...uptime_in_seconds:90...connected_clients:2...blocked_clients:1...",
        );
        check(
            "FOO => !ERR ...; GET => !ERR ...; INFO commandstats errorstats => \
               ...cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0...\
               errorstat_ERR:count=2...",
        );
        check(
            "CONFIG SET maxmemory 2mb; INFO memory => \
               ...maxmemory:2097152\\r\\nmaxmemory_human:2.00M\\r\\nmaxmemory_policy:noeviction...",
        );
    }

    /// Its lease clock is that of its cluster, which is elsewhere at the start.
    #[test]
    fn uptime_of_a_node_is_that_of_its_process() {
        let mut settings = Settings::default();
        settings.put(directive::RAFT_PORT, &1);
        let mut stage = Stage::new(settings);
        stage.engine.follow();
        stage.engine.process.started_ns = 2_000_000_000;
        stage.engine.process.clock_ns = || 7_000_000_000;
        stage.check("+90000ms; INFO server => ...uptime_in_seconds:5\\r\\n...");
    }

    #[test]
    fn bytes_are_shown_human_readable() {
        for (bytes, expected) in [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1 << 40, "1.00T")] {
            assert_eq!(human_readable(bytes), expected);
        }
    }
}
