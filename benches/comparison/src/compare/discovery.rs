//! Finds the servers that are compared.

use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use lockwheel_comparison::Outcome;
use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::{daemon, redis_server};

use crate::measure::running::{Running, bind_to, command};
use crate::measure::servers::{BARE, ClusterType, ComparedServer, FLOOR, ServerType};
use crate::options::{self, BARE_SERVER, Options, contains_one_of};
use crate::progress;
use crate::workloads::replication;

/// The directive that enables plans, which run scripts without Lua.
const PLANS_DIRECTIVE: &str = "script-plans";
/// A command of native locks.
const NATIVE_COMMAND: &str = "LOCK.ACQUIRE";

/// Finds every selected server that is installed, the reference first. Binds this thread to the
/// clients' processor.
pub(crate) fn find(options: &Options) -> Outcome<Vec<ComparedServer>> {
    let core = Some(options.server_core);
    let mut servers = others(options)?;
    let alone = servers.is_empty();
    let ours = own_servers(core)?;
    if options.replication {
        let floor = lower_bound(FLOOR, options::FLOOR, core)?;
        servers = replication::servers(&ours[0], &servers, &floor);
    } else {
        servers.extend(ours);
        if options.durable {
            servers.push(lower_bound(FLOOR, options::FLOOR, core)?);
        } else if !alone && !options.tls {
            // The bare server is useful only in a comparison with other servers.
            servers.push(lower_bound(BARE, BARE_SERVER, core)?);
        }
    }
    if options.tls {
        let certificates = Rc::new(Certificates::new());
        servers.iter_mut().for_each(|it| it.certificates = Some(Rc::clone(&certificates)));
    }
    if !options.peers.is_empty() {
        servers.retain(|server| contains_one_of(&server.name, &options.peers));
    }
    servers.retain(|server| match check(server, options) {
        Ok(()) => true,
        Err(error) => {
            progress::print(&format!("{} is not measured: {error}", server.name));
            false
        }
    });
    servers.first_mut().ok_or("no server has that in its name")?.first_round_only = false;
    bind_to(options.client_core)?;
    if options.server_core == options.client_core {
        progress::print("servers and clients share a processor: rates are not meaningful");
    }
    Ok(servers)
}

/// Checks whether another server can run as this kind of run needs it. That it starts without a log
/// is known.
fn check(server: &ComparedServer, options: &Options) -> Outcome<()> {
    match server.server_type {
        ServerType::Build { .. } | ServerType::Other => (),
        ServerType::Lockwheel | ServerType::InLua | ServerType::Bare => return Ok(()),
    }
    match server.nodes {
        ClusterType::Raft => {
            let mut help = command(server.words.get(..1).unwrap_or_default());
            let output = help.args(["raft", "--help"]).stdout(Stdio::piped()).output()?;
            let has_raft = String::from_utf8_lossy(&output.stdout).contains("raft init");
            if has_raft { Ok(()) } else { Err("it has no `lockwheel raft init`".into()) }
        }
        ClusterType::Etcd => Ok(()),
        ClusterType::One | ClusterType::Replicas if options.durable || options.replication => {
            let directory = server.log_directory(Duration::ZERO)?;
            server.start_with_log_anywhere(&directory, &[]).map(drop)
        }
        ClusterType::One | ClusterType::Replicas if options.tls => server.start(&[]).map(drop),
        ClusterType::One | ClusterType::Replicas => Ok(()),
    }
}

/// Lockwheel with its defaults and, if it has plans, also with every script in Lua.
fn own_servers(core: Option<usize>) -> Outcome<Vec<ComparedServer>> {
    let words = vec![daemon::program().to_string_lossy().into_owned()];
    let mut server = ComparedServer::new("Lockwheel", ServerType::Lockwheel, words.clone(), core);
    let running = server.start(&[])?;
    server.version = info(&running, &["lockwheel_version"])?;
    let has_plans = !running.open()?.call(&["CONFIG", "GET", PLANS_DIRECTIVE])?.items.is_empty();
    let mut ours = vec![server];
    if has_plans {
        let arguments = [format!("--{PLANS_DIRECTIVE}"), "no".to_owned()];
        let words = words.into_iter().chain(arguments).collect();
        let name = "Lockwheel, scripts in Lua";
        let lua = ComparedServer::new(name, ServerType::InLua, words, core);
        ours.push(ComparedServer { version: ours[0].version.clone(), ..lua });
    }
    Ok(ours)
}

/// A lower bound for all servers: a subcommand of this program.
fn lower_bound(name: &str, subcommand: &str, core: Option<usize>) -> Outcome<ComparedServer> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let words = vec![program, subcommand.to_owned()];
    Ok(ComparedServer::new(name, ServerType::Bare, words, core))
}

/// `redis-server` on `PATH`, the servers of the Debian 13 folder, and those of the command line.
fn others(options: &Options) -> Outcome<Vec<ComparedServer>> {
    let other = |name: &str, words| {
        ComparedServer::new(name, ServerType::Other, words, Some(options.server_core))
    };
    let mut found = Vec::new();
    match redis_server::program() {
        Some(words) => found.push(other("Redis", words)),
        None => progress::print("no redis-server on PATH: Lockwheel is not compared with Redis"),
    }
    if let Some(folder) = redis_server::debian_13() {
        for (name, program) in [("Redis", "redis-server"), ("Valkey", "valkey-server")] {
            let words = ["chroot", &folder.to_string_lossy(), program].map(str::to_owned);
            let first_round_only = !options.replication;
            found.push(ComparedServer { first_round_only, ..other(name, words.to_vec()) });
        }
    }
    found.extend(options.peer.iter().map(|peer| other(&peer.name, peer.words.clone())));
    for server in &mut found {
        identify(server).map_err(|error| format!("{}: {error}", server.name))?;
    }
    Ok(found)
}

/// Adds the version to the name of a server, and finds out whether it is a build of Lockwheel.
fn identify(server: &mut ComparedServer) -> Outcome<()> {
    let running = server.start(&[])?;
    if let Ok(version) = info(&running, &["lockwheel_version"]) {
        let found = running.open()?.call(&["COMMAND", "INFO", NATIVE_COMMAND])?;
        let has_native_locks = found.items.iter().any(|it| !it.items.is_empty());
        server.server_type = ServerType::Build { has_native_locks };
        server.version = format!("Lockwheel {version}");
        server.name = format!("{} ({})", server.name, server.version);
    } else {
        server.version = info(&running, &["valkey_version", "redis_version"])?;
        server.name = format!("{} {}", server.name, server.version);
    }
    Ok(())
}

/// The first of these fields that `INFO` contains.
fn info(running: &Running, names: &[&str]) -> Outcome<String> {
    let info = running.ask(&["INFO", "server"])?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = names.iter().find_map(|name| field(name));
    let value = value.ok_or_else(|| format!("INFO contains no {}", names.join(" or ")))?;
    Ok(value.trim().to_owned())
}
