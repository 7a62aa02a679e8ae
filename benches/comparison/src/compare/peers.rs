//! Which servers are compared, and how each is started. It must not know what is measured.

use lockwheel_tests::daemon;
use lockwheel_tests::redis_server;

use crate::options::{BARE_SERVER, Options, holds_one_of};
use crate::running::{Running, stay_on};
use crate::{Outcome, progress};

/// The directive that says whether known shapes of scripts are run without Lua.
const PLANS_DIRECTIVE: &str = "script-plans";

/// What the floor beneath all of them is called.
pub(crate) const BARE: &str = "bare server";

/// A server that is compared.
#[derive(Debug)]
pub(crate) struct Peer {
    /// What it is called in the report.
    pub(crate) name: String,
    /// What it says its version is.
    pub(crate) version: String,
    /// Whether it differs from another in how it runs scripts, and in nothing else.
    pub(crate) for_scripts_only: bool,
    /// Whether it is one of ours.
    pub(crate) ours: bool,
    /// Whether it does nothing but answer: see [`crate::bare`].
    pub(crate) bare: bool,
    /// Whether it is measured in the first round only: there are others that matter more.
    pub(crate) once: bool,
    words: Vec<String>,
    core: Option<usize>,
}

impl Peer {
    /// Starts it, with arguments beyond those that make it a plain server without persistence.
    pub(crate) fn start(&self, arguments: &[&str]) -> Outcome<Running> {
        Running::start(&self.words, arguments, self.core)
    }

    /// As [`Peer::start`], on whatever processors there are.
    pub(crate) fn start_anywhere(&self, arguments: &[&str]) -> Outcome<Running> {
        Running::start(&self.words, arguments, None)
    }

    /// The processor it stays on, if it is one.
    pub(crate) fn core(&self) -> Option<usize> {
        self.core
    }

    fn new(name: &str, words: Vec<String>, core: Option<usize>) -> Peer {
        let version = String::new();
        Peer {
            name: name.to_owned(),
            version,
            for_scripts_only: false,
            ours: false,
            bare: false,
            once: false,
            words,
            core,
        }
    }

    /// One that is not to be started.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Peer {
        Peer::new(name, Vec::new(), None)
    }

    /// Our own, on any processor.
    #[cfg(test)]
    pub(crate) fn lockwheel() -> Peer {
        Peer::new("Lockwheel", own_words(), None)
    }
}

/// Every server that is wanted and can be had, what others are compared with first. From here on
/// this thread stays on the clients' processor.
pub(crate) fn find(options: &Options) -> Outcome<Vec<Peer>> {
    let core = Some(options.server_core);
    let mut peers = others(options)?;
    for peer in &mut peers {
        peer.version = version(&peer.start(&[])?)?;
        peer.name = format!("{} {}", peer.name, peer.version);
    }
    let alone = peers.is_empty();
    peers.extend(ours(core)?);
    // How far somebody is from the floor is told by how far others are.
    if !alone {
        peers.push(bare(core)?);
    }
    if !options.peers.is_empty() {
        peers.retain(|peer| holds_one_of(&peer.name, &options.peers));
    }
    if peers.is_empty() {
        return Err("no server has that in its name".into());
    }
    for peer in peers.iter_mut().skip(1) {
        peer.once = !peer.ours && !peer.bare;
    }
    stay_on(options.client_core)?;
    if options.server_core == options.client_core {
        progress::say("servers and clients share a processor: rates mean little");
    }
    Ok(peers)
}

/// Lockwheel as people run it, and once more with every script in Lua, if it can do otherwise.
fn ours(core: Option<usize>) -> Outcome<Vec<Peer>> {
    let words = own_words();
    let mut peer = Peer { ours: true, ..Peer::new("Lockwheel", words.clone(), core) };
    let running = peer.start(&[])?;
    peer.version = version(&running)?;
    let knows_plans = !running.open()?.call(&["CONFIG", "GET", PLANS_DIRECTIVE])?.items.is_empty();
    let mut ours = vec![peer];
    if knows_plans {
        let arguments = [format!("--{PLANS_DIRECTIVE}"), "no".to_owned()];
        let words = words.into_iter().chain(arguments).collect();
        let name = "Lockwheel, scripts in Lua";
        let version = ours[0].version.clone();
        let lua =
            Peer { version, ours: true, for_scripts_only: true, ..Peer::new(name, words, core) };
        ours.push(lua);
    }
    Ok(ours)
}

/// The floor beneath all of them.
fn bare(core: Option<usize>) -> Outcome<Peer> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    let words = vec![program, BARE_SERVER.to_owned()];
    Ok(Peer { bare: true, ..Peer::new(BARE, words, core) })
}

fn own_words() -> Vec<String> {
    vec![daemon::program().to_string_lossy().into_owned()]
}

/// `redis-server` on the path, the servers of another folder, and those of the command line.
fn others(options: &Options) -> Outcome<Vec<Peer>> {
    let core = Some(options.server_core);
    let mut found = Vec::new();
    match redis_server::program() {
        Some(words) => found.push(Peer::new("Redis", words, core)),
        None => progress::say("no redis-server on PATH: there is nobody to be compared with"),
    }
    if let Some(folder) = redis_server::debian_13() {
        for (name, program) in [("Redis", "redis-server"), ("Valkey", "valkey-server")] {
            let words = ["chroot", &folder.to_string_lossy(), program].map(str::to_owned);
            found.push(Peer::new(name, words.to_vec(), core));
        }
    }
    for peer in &options.peer {
        let (name, command) = peer.split_once('=').ok_or("--peer is NAME=COMMAND")?;
        let words = command.split_whitespace().map(str::to_owned).collect();
        found.push(Peer::new(name, words, core));
    }
    Ok(found)
}

/// What a server says of itself.
fn version(running: &Running) -> Outcome<String> {
    let info = running.ask(&["INFO", "server"])?;
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let versions = ["lockwheel_version", "valkey_version", "redis_version"];
    let version = versions.iter().find_map(|name| field(name)).ok_or("INFO tells no version")?;
    Ok(version.trim().to_owned())
}
