//! What a process holds: its descriptors, its threads, its memory; as Linux tells.

use std::fs;
use std::io::{Read, Seek};
use std::process::Command;
use std::time::{Duration, Instant};

/// Set in a process that [`alone`] has started.
const ALONE_VARIABLE: &str = "LOCKWHEEL_TEST_ALONE";

/// How long something may take before a test fails: far more than anything needs, so that a
/// loaded machine fails nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `act` in a process without other tests. `name` is the calling test's.
pub fn alone(name: &str, act: impl FnOnce()) {
    if std::env::var_os(ALONE_VARIABLE).is_some() {
        return act();
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ALONE_VARIABLE, "1")
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// How many descriptors this process has open.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// How many threads of this process have a name that begins so.
pub fn threads(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("a list of threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// Bytes of memory this process has resident.
pub fn resident_bytes() -> u64 {
    status_kib("self", "VmRSS:") * 1024
}

/// Bytes of memory that another process has resident.
pub fn resident_bytes_of(process_id: u32) -> u64 {
    status_kib(&process_id.to_string(), "VmRSS:") * 1024
}

/// How long this process has kept processors busy. Needs a descriptor now and none later.
pub struct Processors(fs::File);

impl Processors {
    /// Watches them.
    pub fn watch() -> Processors {
        Processors(fs::File::open("/proc/self/stat").expect("a status"))
    }

    /// In hundredths of a second, since the process began.
    pub fn ticks(&mut self) -> u64 {
        let mut stat = String::new();
        self.0.rewind().expect("a status");
        self.0.read_to_string(&mut stat).expect("a status");
        // The program's name, in parentheses, may hold anything.
        let (_, rest) = stat.rsplit_once(')').expect("a name");
        let fields = rest.split_whitespace().skip(11).take(2);
        fields.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }
}

/// What another process holds at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Bytes of resident memory.
    pub resident_bytes: u64,
    /// The most bytes of memory that it has had resident.
    pub resident_bytes_max: u64,
}

impl Held {
    /// By the process of this number.
    pub fn by(process_id: u32) -> Held {
        let count = |what: &str| {
            let entries = fs::read_dir(format!("/proc/{process_id}/{what}"));
            entries.expect("the process is there").count()
        };
        let process = process_id.to_string();
        Held {
            descriptors: count("fd"),
            threads: count("task"),
            resident_bytes: status_kib(&process, "VmRSS:") * 1024,
            resident_bytes_max: status_kib(&process, "VmHWM:") * 1024,
        }
    }
}

/// Whether every thread of a process has stopped: a signal to stop reaches one after the other.
pub fn is_stopped(process_id: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process_id}/task")).expect("a list of threads");
    let mut stats =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.all(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T")))
}

fn status_kib(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Lets the system's time pass: for what only a stopped process would show.
#[expect(clippy::disallowed_methods, reason = "a stopped process's clock cannot be moved")]
pub fn let_pass(span: Duration) {
    std::thread::sleep(span);
}

/// Waits for something that no clock of ours can bring about.
#[expect(clippy::disallowed_methods, reason = "the system's doings are not on our clock")]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
