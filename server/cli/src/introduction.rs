//! What the log says of a server besides the lines of Redis: at the start its configuration and
//! what a crash would cost, at the end how many locks were held.

use std::sync::Arc;

use lockwheel::{Server, Settings};
use lockwheel_engine::settings::{FlushPolicy, LOCKWHEEL_VERSION, Mode, Permission, directive};
use tracing::{info, warn};

use crate::admin::metrics::fields;
use crate::limits::LOCKS_COUNT_TIMEOUT;
use crate::process_settings::ProcessSettings;

/// Logs what is started, with which configuration, and what a crash would cost.
pub(crate) fn log_start(settings: &Settings, process: &ProcessSettings) {
    let (product, version) = settings.compat_version.introduction();
    let product = if product == "valkey" { "Valkey" } else { "Redis" };
    info!("Lockwheel {LOCKWHEEL_VERSION} is starting, speaking {product} {version}");
    info!("{}", configuration(settings, process));
    let keeps = settings.has_log() || settings.is_node() || settings.get(directive::RESTART_GUARD);
    let is_for_tests = settings.enable_test_commands != Permission::No;
    if !keeps && !is_for_tests && settings.sentinel.is_none() {
        info!(
            "Without a log and a restart guard, a crash loses all locks, and they can be granted \
             again at once: 'appendonly yes' keeps them, 'restart-guard yes' waits for the ends of \
             their leases"
        );
    }
}

/// The configuration in one line.
fn configuration(settings: &Settings, process: &ProcessSettings) -> String {
    let file = settings.config_file.as_deref().unwrap_or("none");
    let log = match (settings.has_log(), settings.get(directive::APPENDFSYNC)) {
        _ if settings.is_node() => "replicated log".to_owned(),
        (false, _) => "no log".to_owned(),
        (true, policy) => format!("log flushed {}", flushes(policy)),
    };
    let guard = if settings.get(directive::RESTART_GUARD) { "restart guard" } else { "no guard" };
    let role = match settings.mode() {
        Mode::Standalone if settings.is_node() => "node of a replicated cluster",
        mode => mode.name(),
    };
    let ports = [
        ("port", settings.port),
        ("tls-port", settings.get(directive::TLS_PORT)),
        ("raft-port", settings.get(directive::RAFT_PORT)),
        ("admin-port", process.admin.port),
    ];
    let ports = ports.iter().filter(|(_, port)| *port != 0);
    let ports: String = ports.map(|(name, port)| format!(", {name} {port}")).collect();
    let dir = settings.get(directive::DIR);
    format!("Configuration file {file}, directory {dir}, {log}, {guard}, {role}{ports}")
}

fn flushes(policy: FlushPolicy) -> &'static str {
    match policy {
        FlushPolicy::Always => "before each reply",
        FlushPolicy::EverySecond => "every second",
        FlushPolicy::Never => "by the system",
    }
}

/// Logs how many locks are held when the server ends, if any are known. `is_kept` says whether they
/// are in the log on disk.
pub(crate) async fn log_held(server: &Arc<Server>, is_kept: bool) {
    let server = server.clone();
    let count = tokio::task::spawn_blocking(move || held(&server));
    match tokio::time::timeout(LOCKS_COUNT_TIMEOUT, count).await {
        Ok(Ok(Some(0) | None) | Err(_)) => {}
        Err(_) => info!("Locks held: not known, since a command runs"),
        Ok(Ok(Some(count))) if is_kept => info!("Locks held: {count}; they are in the log"),
        Ok(Ok(Some(count))) => warn!("Locks held: {count}; they end with the server"),
    }
}

/// The locks that the lock view knows.
fn held(server: &Server) -> Option<u64> {
    let mut client = server.monitoring_client().ok()?;
    let info = client.call(&["INFO", "lockwheel"]).ok()?;
    fields(&info)?.get("locks_held")?.parse().ok()
}
