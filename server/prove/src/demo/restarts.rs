//! One server that is killed and started again, over and over.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::lockwheel_cluster::lockwheel;
use super::place::Place;
use super::program::{Folder, Program};
use super::redis;
use super::{DemoRun, target};
use crate::clock::now_us;
use crate::faults::{FaultRun, FaultSource};
use crate::record::Fault;
use crate::target::Topology;

/// Time with load between two faults.
const LOAD: Duration = Duration::from_secs(3);

/// Runs the command of one server.
struct Restarts {
    program: Program,
    command: Box<dyn Fn() -> Result<Command, String> + Send>,
    log: PathBuf,
    place: Place,
    /// What the server has after a start.
    keeps: &'static str,
    // Dropped last: the program uses it.
    _folder: Folder,
}

/// Starts a `redis-server` without persistence.
pub(super) fn redis() -> Result<DemoRun, String> {
    let program = redis::find_redis()?;
    let (folder, place) = (Folder::new()?, Place::local()?);
    let (dir, of_command) = (folder.folder("data")?, place.clone());
    let command = move || redis::command(&program, &of_command, &dir);
    start(folder, place, Box::new(command), "without its data")
}

/// Starts a node of Lockwheel that logs what it does before it replies.
pub(super) fn durable_lockwheel(program: &Path) -> Result<DemoRun, String> {
    let (folder, place) = (Folder::new()?, Place::local()?);
    let (dir, program, port) = (folder.folder("data")?, program.to_owned(), place.port.to_string());
    let command = move || {
        let mut command = lockwheel(&program);
        command.args(["--bind", "127.0.0.1", "--port", &port, "--dir", &dir]);
        command.args(["--appendonly", "yes"]);
        Ok(command)
    };
    start(folder, place, Box::new(command), "with its log")
}

fn start(
    folder: Folder,
    place: Place,
    command: Box<dyn Fn() -> Result<Command, String> + Send>,
    keeps: &'static str,
) -> Result<DemoRun, String> {
    let log = folder.path("server.log");
    let mut program = Program::start(command()?, &log)?;
    place.wait_until_ready(&mut program, &FaultRun::default())?;
    let target = target(std::slice::from_ref(&place), Topology::Single);
    let faults = Restarts { program, command, log, place, keeps, _folder: folder };
    Ok(DemoRun {
        lease: Duration::from_secs(5),
        duration: Duration::from_secs(60),
        ..DemoRun::new(target, Box::new(faults))
    })
}

impl FaultSource for Restarts {
    fn wait(&mut self, run: &FaultRun) -> bool {
        run.pause(LOAD)
    }

    fn inject(&mut self, run: &FaultRun) -> Result<Fault, String> {
        let Restarts { place, keeps, .. } = self;
        let name = format!(
            "SIGKILL to the server at {place} (process {}), which was started again {keeps}",
            self.program.id()
        );
        let begin_us = now_us();
        // It does not run if it could not be started again.
        if self.program.check_alive().is_ok() {
            self.program.kill()?;
        }
        self.program = Program::start((self.command)()?, &self.log)?;
        self.place.wait_until_ready(&mut self.program, run)?;
        Ok(Fault { name, begin_us, end_us: now_us(), effects: Vec::new() })
    }
}
