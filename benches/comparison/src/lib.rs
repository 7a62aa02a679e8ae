//! What the programs of this package share: their errors, a description of the machine, a PING, and
//! the floor.

pub mod floor;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// A result whose error is a text for the user of a program.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The machine and its load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The commit of the checkout that was measured.
    #[serde(default)]
    pub commit: String,
    /// The model of the processor.
    pub processor: String,
    /// The number of processors.
    pub processors: usize,
    /// The version of the Linux kernel.
    pub kernel: String,
    /// The kernel's mitigations of processor vulnerabilities, which affect all servers equally.
    pub mitigations: Vec<String>,
    /// The day of the run.
    pub date: String,
    /// The load average before and after the run: above two, there was other load.
    pub load: Vec<String>,
}

/// The commit of the checkout, marked if files are modified; empty outside a checkout.
pub fn git_commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Sends PING on a new connection and reads the reply.
///
/// # Errors
/// The server cannot be reached, or the reply is not PONG.
pub fn ping(address: SocketAddr) -> io::Result<()> {
    const PONG: &[u8] = b"+PONG\r\n";
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    let mut reply = [0; PONG.len()];
    stream.read_exact(&mut reply)?;
    if reply == PONG { Ok(()) } else { Err(io::Error::other("no PONG")) }
}

impl Machine {
    /// This machine, at the beginning of a run.
    pub fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let named = |line: &str| line.starts_with("model name");
        let model =
            cpu_info.lines().find(|line| named(line)).and_then(|line| line.split_once(": "));
        Machine {
            commit: git_commit(),
            processor: model.map_or("?", |(_, model)| model.trim()).to_owned(),
            processors: cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            mitigations: Machine::mitigations(),
            date: Machine::date(),
            load: vec![Machine::load()],
        }
    }

    /// Each mitigated vulnerability with its mitigation.
    fn mitigations() -> Vec<String> {
        let folder = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
        let mitigation = |path: PathBuf| {
            let state = std::fs::read_to_string(&path).ok()?;
            let state = state.trim().strip_prefix("Mitigation: ")?;
            let name = state.split([';', ',']).next().unwrap_or_default();
            let vulnerability = path.file_name()?.to_string_lossy().replace('_', " ");
            Some(format!("{vulnerability}: {name}"))
        };
        let paths = folder.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut all: Vec<String> = paths.filter_map(mitigation).collect();
        all.sort();
        all
    }

    fn date() -> String {
        let output = Command::new("date").args(["--utc", "+%F"]).output();
        let date = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        date.unwrap_or_default()
    }

    /// Adds the load at the end of a run.
    pub fn record_load(&mut self) {
        self.load.push(Machine::load());
    }

    /// The load average of the last minute.
    fn load() -> String {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        load.split(' ').next().unwrap_or_default().to_owned()
    }
}
