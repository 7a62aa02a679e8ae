//! The servers that are compared, and how each is started.

use std::rc::Rc;
use std::time::Duration;

use lockwheel_comparison::Outcome;
use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::daemon;
use lockwheel_tests::redis_server;

use crate::log_directory::LogDirectory;
use crate::options::{BARE_SERVER, Options, holds_one_of};
use crate::replication::ClusterType;
use crate::running::{Running, bind_to};
use crate::{progress, replication};

/// The directive that enables plans, which run scripts without Lua.
const PLANS_DIRECTIVE: &str = "script-plans";

/// The name of the server that is the lower bound.
pub(crate) const BARE: &str = "bare server";

/// A server that is compared.
#[derive(Clone)]
pub(crate) struct ComparedServer {
    /// Its name in the report.
    pub(crate) name: String,
    /// Its version according to `INFO`.
    pub(crate) version: String,
    /// Whether it differs from another server only in how it runs scripts.
    pub(crate) for_scripts_only: bool,
    /// Whether it is Lockwheel.
    pub(crate) ours: bool,
    /// Whether it is the [bare server](crate::bare_server).
    pub(crate) is_bare: bool,
    /// Whether it is measured in the first round only, to save time.
    pub(crate) first_round_only: bool,
    /// Its nodes, of which only [`crate::replication`] measures several.
    pub(crate) nodes: ClusterType,
    words: Vec<String>,
    core: Option<usize>,
    /// Those of its port for TLS, if its clients use that.
    certificates: Option<Rc<Certificates>>,
}

impl ComparedServer {
    /// Starts it with additional arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Outcome<Running> {
        match &self.certificates {
            Some(certificates) => {
                Running::start_with_tls(&self.words, arguments, self.core, certificates)
            }
            None => Running::start(&self.words, arguments, self.core, None),
        }
    }

    /// Starts it like [`ComparedServer::start`], on any processor.
    pub(crate) fn start_anywhere(&self, arguments: &[&str]) -> Outcome<Running> {
        Running::start(&self.words, arguments, None, None)
    }

    /// An empty directory for its log. Each flush takes longer by the delay.
    pub(crate) fn log_directory(&self, flush_delay: Duration) -> Outcome<Rc<LogDirectory>> {
        Ok(Rc::new(LogDirectory::create(&self.words, flush_delay)?))
    }

    /// Starts it with a log in this directory.
    pub(crate) fn start_with_log(
        &self,
        directory: &Rc<LogDirectory>,
        arguments: &[&str],
    ) -> Outcome<Running> {
        Running::start(&self.words, arguments, self.core, Some(directory))
    }

    /// Starts it like [`ComparedServer::start_with_log`], on any processor.
    pub(crate) fn start_with_log_anywhere(
        &self,
        directory: &Rc<LogDirectory>,
        arguments: &[&str],
    ) -> Outcome<Running> {
        Running::start(&self.words, arguments, None, Some(directory))
    }

    /// The words it is started with.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The processor it is bound to, if any.
    pub(crate) fn core(&self) -> Option<usize> {
        self.core
    }

    /// A server that is started with these words and arguments of each measurement.
    pub(crate) fn new(name: &str, words: Vec<String>, core: Option<usize>) -> ComparedServer {
        let version = String::new();
        ComparedServer {
            name: name.to_owned(),
            version,
            for_scripts_only: false,
            ours: false,
            is_bare: false,
            first_round_only: false,
            nodes: ClusterType::One,
            words,
            core,
            certificates: None,
        }
    }

    /// A server that cannot be started.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> ComparedServer {
        ComparedServer::new(name, Vec::new(), None)
    }

    /// Lockwheel on any processor.
    #[cfg(test)]
    pub(crate) fn lockwheel() -> ComparedServer {
        ComparedServer::new("Lockwheel", own_words(), None)
    }
}

/// Finds every selected server that is installed, the reference first. Binds this thread to the
/// clients' processor.
pub(crate) fn find(options: &Options) -> Outcome<Vec<ComparedServer>> {
    let core = Some(options.server_core);
    let mut servers = others(options)?;
    for server in &mut servers {
        server.version = version(&server.start(&[])?)?;
        server.name = format!("{} {}", server.name, server.version);
    }
    let alone = servers.is_empty();
    let ours = own_servers(core)?;
    match options.replication {
        true => servers = replication::servers(&ours[0], &servers),
        false => servers.extend(ours),
    }
    // The bare server is useful only in a comparison with other servers.
    if !alone && !options.durable && !options.replication && !options.tls {
        servers.push(bare_server(core)?);
    }
    if options.tls {
        let certificates = Rc::new(Certificates::new());
        servers.iter_mut().for_each(|it| it.certificates = Some(Rc::clone(&certificates)));
    }
    if !options.peers.is_empty() {
        servers.retain(|server| holds_one_of(&server.name, &options.peers));
    }
    if servers.is_empty() {
        return Err("no server has that in its name".into());
    }
    for server in servers.iter_mut().skip(1) {
        server.first_round_only = !server.ours && !server.is_bare && !options.replication;
    }
    bind_to(options.client_core)?;
    if options.server_core == options.client_core {
        progress::print("servers and clients share a processor: rates are not meaningful");
    }
    Ok(servers)
}

/// Lockwheel with its defaults and, if it has plans, also with every script in Lua.
fn own_servers(core: Option<usize>) -> Outcome<Vec<ComparedServer>> {
    let words = own_words();
    let mut server = ComparedServer::new("Lockwheel", words.clone(), core);
    server.ours = true;
    let running = server.start(&[])?;
    server.version = version(&running)?;
    let has_plans = !running.open()?.call(&["CONFIG", "GET", PLANS_DIRECTIVE])?.items.is_empty();
    let mut ours = vec![server];
    if has_plans {
        let arguments = [format!("--{PLANS_DIRECTIVE}"), "no".to_owned()];
        let words = words.into_iter().chain(arguments).collect();
        let name = "Lockwheel, scripts in Lua";
        let version = ours[0].version.clone();
        let mut lua = ComparedServer { version, ..ComparedServer::new(name, words, core) };
        (lua.ours, lua.for_scripts_only) = (true, true);
        ours.push(lua);
    }
    Ok(ours)
}

/// The lower bound for all servers.
fn bare_server(core: Option<usize>) -> Outcome<ComparedServer> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let words = vec![program, BARE_SERVER.to_owned()];
    Ok(ComparedServer { is_bare: true, ..ComparedServer::new(BARE, words, core) })
}

fn own_words() -> Vec<String> {
    vec![daemon::program().to_string_lossy().into_owned()]
}

/// `redis-server` on `PATH`, the servers of the Debian 13 folder, and those of the command line.
fn others(options: &Options) -> Outcome<Vec<ComparedServer>> {
    let core = Some(options.server_core);
    let mut found = Vec::new();
    match redis_server::program() {
        Some(words) => found.push(ComparedServer::new("Redis", words, core)),
        None => progress::print("no redis-server on PATH: Lockwheel is not compared with Redis"),
    }
    if let Some(folder) = redis_server::debian_13() {
        for (name, program) in [("Redis", "redis-server"), ("Valkey", "valkey-server")] {
            let words = ["chroot", &folder.to_string_lossy(), program].map(str::to_owned);
            found.push(ComparedServer::new(name, words.to_vec(), core));
        }
    }
    for server in &options.peer {
        let (name, command) = server.split_once('=').ok_or("--peer is NAME=COMMAND")?;
        let words = command.split_whitespace().map(str::to_owned).collect();
        found.push(ComparedServer::new(name, words, core));
    }
    Ok(found)
}

/// The version of a server according to `INFO`.
fn version(running: &Running) -> Outcome<String> {
    let info = running.ask(&["INFO", "server"])?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let versions = ["lockwheel_version", "valkey_version", "redis_version"];
    let version = versions.iter().find_map(|name| field(name)).ok_or("INFO contains no version")?;
    Ok(version.trim().to_owned())
}
