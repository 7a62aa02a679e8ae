//! The server that is killed.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::ValueEnum;
use lockwheel_prove::Fault;
use lockwheel_prove::demo::lockwheel_cluster::lockwheel;
use lockwheel_prove::demo::place::Place;
use lockwheel_prove::demo::ports::free_port;
use lockwheel_prove::demo::program::{Folder, Program};
use lockwheel_prove::faults::FaultRun;
use lockwheel_tests::daemon;
use lockwheel_tests::load::now_us;

/// What keeps the locks over a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// The log, with a flush before each reply
    Always,
    /// The log, with a flush each second
    Everysec,
    /// No log: the restart guard waits for the end of all leases
    Guard,
    /// Nothing: locks are lost and granted twice
    Memory,
}

impl Policy {
    /// Returns the shortest and the longest lease. The guard lasts as long as the longest.
    pub(crate) fn lease_ms(self) -> (u32, u32) {
        if self == Policy::Guard { (300, 600) } else { (1000, 3000) }
    }

    /// Returns whether the judge requires that locks survive a restart. `Memory` does not keep
    /// them, which the judge must find.
    pub(crate) fn keeps_locks(self) -> bool {
        self != Policy::Guard
    }

    fn arguments(self) -> Vec<&'static str> {
        let log = |policy| vec!["--appendonly", "yes", "--appendfsync", policy];
        match self {
            Policy::Always => log("always"),
            Policy::Everysec => log("everysec"),
            Policy::Guard => vec!["--restart-guard", "yes"],
            Policy::Memory => vec!["--restart-guard", "no"],
        }
    }
}

/// A server process and its folder.
pub(crate) struct Server {
    program: Program,
    place: Place,
    policy: Policy,
    // Dropped last: the program uses it.
    folder: Folder,
}

impl Server {
    /// Starts a server in an empty folder.
    pub(crate) fn start(policy: Policy) -> Result<Server, String> {
        let host = Ipv4Addr::LOCALHOST.to_string();
        let port = free_port(&[&host])?;
        let (place, folder) = (Place { host, port }, Folder::new()?);
        folder.folder("data")?;
        let program = run(&folder, &place, policy)?;
        Ok(Server { program, place, policy, folder })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Starts the server again, after a kill.
    pub(crate) fn start_again(&mut self) -> Result<(), String> {
        self.program = run(&self.folder, &self.place, self.policy)?;
        Ok(())
    }

    /// Waits until the server answers commands.
    pub(crate) fn wait_until_ready(&mut self) -> Result<(), String> {
        self.place.wait_until_ready(&mut self.program, &FaultRun::default())
    }

    /// Returns an error if the process has ended by itself.
    pub(crate) fn check_alive(&mut self) -> Result<(), String> {
        self.program.check_alive()
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<Fault, String> {
        let begin_us = now_us();
        self.program.kill()?;
        let name = format!("SIGKILL to process {}", self.program.id());
        let effects = vec!["the process ended".to_owned()];
        Ok(Fault { name, begin_us, end_us: now_us(), effects })
    }

    /// Ends the server and keeps its files. Returns their path.
    pub(crate) fn keep_folder(self) -> PathBuf {
        self.folder.keep().to_owned()
    }
}

fn run(folder: &Folder, place: &Place, policy: Policy) -> Result<Program, String> {
    let mut command = lockwheel(daemon::program());
    command.args(["--bind", &place.host, "--port", &place.port.to_string(), "--dir"]);
    command.arg(folder.path("data"));
    // A small log is rewritten often, so that many kills come while a snapshot is written.
    command.args(["--auto-aof-rewrite-min-size", "64kb"]).args(policy.arguments());
    Program::start(command, &folder.path("log"))
}
