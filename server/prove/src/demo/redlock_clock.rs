//! Redlock on servers whose wall clocks are moved.
//!
//! The library of `faketime` moves the clock that a server sees; the clock of the machine is not
//! set. Redis ends leases by the wall clock.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::place::{Place, item};
use super::program::{Folder, Program};
use super::redis::{command, find, find_redis};
use super::{DemoRun, target};
use crate::clock::{now_us, wall_us};
use crate::faults::{FaultRun, FaultSource};
use crate::record::Fault;
use crate::target::Topology;

/// Number of servers.
const COUNT: usize = 5;

/// Number of servers whose clocks are moved at once.
const MAJORITY: usize = COUNT / 2 + 1;

/// By how much a clock is moved forward.
const MOVE_S: i64 = 60;

/// The largest difference from the clock that a server should have.
const DIFFERENCE_MAX_US: i64 = 2_000_000;

/// Time with load between two faults.
const LOAD: Duration = Duration::from_secs(6);

/// The variable by which the library is loaded on Linux, and those on macOS.
const PRELOAD: &str = "LD_PRELOAD";
const OTHER_VARIABLES: &[&str] = &["DYLD_INSERT_LIBRARIES", "DYLD_FORCE_FLAT_NAMESPACE"];

/// Loaded after that library, so that the server does not use the memory of jemalloc: its first use
/// reads the clock, for which the library needs memory.
const LIBC: &str = "libc.so.6";

/// Variables with their values.
type Variables = Vec<(String, String)>;

/// A server that sees another wall clock.
struct Server {
    _program: Program,
    place: Place,
    /// The file from which the library reads by how much the clock is moved.
    clock: PathBuf,
    moved_s: i64,
}

/// Moves the clocks of a majority, each time of others.
struct ClockMoves {
    servers: Vec<Server>,
    next: usize,
    // Dropped last: the servers use it.
    _folder: Folder,
}

/// Starts the demo.
pub(super) fn start() -> Result<DemoRun, String> {
    let program = find_redis()?;
    let faketime = find("faketime", "this demo moves the clocks of its servers with it")?;
    let plain = loader_variables(Command::new(faketime))?;
    let folder = Folder::new()?;
    let mut servers = Vec::new();
    for index in 0..COUNT {
        // Other systems have no such library, and need none.
        let server = Server::start(index, &program, &with_libc(&plain), &folder)
            .or_else(|_| Server::start(index, &program, &plain, &folder));
        servers.push(server?);
    }
    let places: Vec<_> = servers.iter().map(|server| server.place.clone()).collect();
    let target = target(&places, Topology::Independent);
    let faults = ClockMoves { servers, next: 0, _folder: folder };
    Ok(DemoRun {
        // Each lock is five requests.
        rate: 500,
        lease: Duration::from_secs(5),
        // There is one kind.
        locks: 100,
        duration: Duration::from_secs(60),
        ..DemoRun::new(target, Box::new(faults))
    })
}

/// The variables that `faketime` sets to load its library. The servers get them without
/// `faketime`, which would be their parent.
fn loader_variables(mut faketime: Command) -> Result<Variables, String> {
    faketime.args(["-f", "+0", "env"]).stdin(Stdio::null());
    let output = faketime.output().map_err(|error| format!("faketime: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let pairs = pairs.filter(|(name, _)| *name == PRELOAD || OTHER_VARIABLES.contains(name));
    let variables: Variables =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if variables.is_empty() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("faketime does not name its library: {reason}"));
    }
    Ok(variables)
}

fn with_libc(variables: &[(String, String)]) -> Variables {
    let mut variables = variables.to_owned();
    for (_, value) in variables.iter_mut().filter(|(name, _)| name == PRELOAD) {
        value.push(' ');
        value.push_str(LIBC);
    }
    variables
}

impl Server {
    fn start(
        index: usize,
        program: &[String],
        loader: &[(String, String)],
        folder: &Folder,
    ) -> Result<Server, String> {
        let (place, dir) = (Place::local()?, folder.path("").to_string_lossy().into_owned());
        let clock = folder.path(&format!("clock-{index}"));
        write_clock(&clock, 0)?;
        let mut command = command(program, &place, &dir)?;
        command.envs(loader.iter().map(|(name, value)| (name, value)));
        command.env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
        // Only the wall clock is moved, as when the clock of a machine is set.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        command.env_remove("FAKETIME").env_remove("FAKETIME_SHARED");
        let mut started = Program::start(command, &folder.path(&format!("server-{index}.log")))?;
        place.wait_until_ready(&mut started, &FaultRun::default())?;
        Ok(Server { _program: started, place, clock, moved_s: 0 })
    }

    fn move_clock(&mut self) -> Result<(), String> {
        self.moved_s += MOVE_S;
        write_clock(&self.clock, self.moved_s)
    }

    /// Checks that the server sees the moved clock.
    fn check_clock(&self) -> Result<(), String> {
        let answer = self.place.ask("TIME").ok_or_else(|| format!("{} is gone", self.place))?;
        let seen_us = item(&answer, 0).parse::<i64>().unwrap_or_default() * 1_000_000;
        let difference_us = seen_us - (wall_us() + self.moved_s * 1_000_000);
        match difference_us.abs() <= DIFFERENCE_MAX_US {
            true => Ok(()),
            false => Err(format!("faketime does not move the clock of {}", self.place)),
        }
    }
}

/// The library may read at any time, so the file is replaced.
fn write_clock(path: &PathBuf, moved_s: i64) -> Result<(), String> {
    let new = path.with_extension("new");
    let written = fs::write(&new, format!("+{moved_s}\n")).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

impl FaultSource for ClockMoves {
    fn wait(&mut self, run: &FaultRun) -> bool {
        run.pause(LOAD)
    }

    fn inject(&mut self, _: &FaultRun) -> Result<Fault, String> {
        let chosen: Vec<usize> =
            (self.next..self.next + MAJORITY).map(|number| number % COUNT).collect();
        self.next += 1;
        let begin_us = now_us();
        for index in &chosen {
            self.servers[*index].move_clock()?;
        }
        let end_us = now_us();
        let servers = || chosen.iter().map(|index| &self.servers[*index]);
        servers().try_for_each(Server::check_clock)?;
        let places: Vec<_> = servers().map(|server| server.place.to_string()).collect();
        let name = format!("the wall clocks of {} moved forward by {MOVE_S} s", places.join(", "));
        Ok(Fault { name, begin_us, end_us, effects: Vec::new() })
    }
}
