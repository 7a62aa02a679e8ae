//! Counts what a server does for whole requests: instructions, system calls and clock reads, each
//! from one wait for input to the next. The server is any program, and runs under callgrind. A
//! client sends each request when it has the reply to the one before, or 16 together.
//!
//! The counts are those of all threads of the process, whichever functions make the calls. They do
//! not depend on the load of the machine: `stopped_clock.c` stops the clocks while requests are
//! counted, and the result is the median of several windows of requests, which leaves out the rare
//! work of background threads. Under valgrind the C library reads clocks by system calls, so a
//! clock that is read past the functions of `stopped_clock.c` is counted as a system call.

use std::fs;
use std::path::Path;
use std::process::Command;

use lockwheel_benches::engine_bench::OWNER;
use lockwheel_compat::wire::request;
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::scripts::{COMPARE_AND_DELETE, LOCK_3, UNLOCK_3};
use lockwheel_tests::wire::Wire;

use crate::recorded::Count;

/// Requests that are sent together, so that the server reads them by one system call.
const BATCH: usize = 16;
/// Requests of one window.
const WINDOW: usize = 20 * BATCH;
/// Windows of which the median counts.
const WINDOWS: usize = 5;
/// The argument of the PING that ends a window: see `stopped_clock.c`.
const MARK: &[&str] = &["PING", "end-of-window"];
/// Beginning of the line that has the clock reads of the server so far.
const READS: &str = "desc: Trigger: Client Request: clock reads ";
/// The lease of the locks that are held: longer than a measurement.
const LEASE_MS: u32 = 3_600_000;
/// Why a window may have no end.
const REQUIREMENT: &str = "the program must be dynamically linked, and use recv and epoll_wait";
const SOURCE: &str = include_str!("stopped_clock.c");

/// Commands that are counted together, each with the beginning of its reply. `{fresh}` is replaced
/// by a key that does not exist, `{owner}` by [`OWNER`], the name of a script by its digest.
pub(crate) struct Cycle {
    /// The name under which its counts are recorded.
    pub(crate) name: &'static str,
    commands: &'static [(&'static str, &'static str)],
}

/// The requests that are counted. The keys `string` and `hash` are locks of [`OWNER`].
pub(crate) const CYCLES: &[Cycle] = &[
    Cycle { name: "ping, connection", commands: &[("PING", "+PONG\r\n")] },
    Cycle { name: "get, connection", commands: &[("GET string", "$38\r\n")] },
    Cycle {
        name: "set nx px and compare and delete, connection",
        commands: &[
            ("SET {fresh} {owner} NX PX 30000", "+OK\r\n"),
            ("EVALSHA {compare-and-delete} 1 {fresh} {owner}", ":1\r\n"),
        ],
    },
    Cycle {
        name: "set nx px, refused, connection",
        commands: &[("SET string x NX PX 30000", "$-1\r\n")],
    },
    Cycle {
        name: "redisson lock and unlock, connection",
        commands: &[
            ("EVALSHA {lock} 1 {fresh} 30000 {owner}", "$-1\r\n"),
            (
                "EVALSHA {unlock} 2 {fresh} redisson_lock__channel:{{fresh}} 0 30000 {owner}",
                ":1\r\n",
            ),
        ],
    },
    Cycle {
        name: "redisson lock, refused, connection",
        commands: &[("EVALSHA {lock} 1 hash 30000 x", ":")],
    },
];

/// What a server has done in a window.
#[derive(Clone, Copy)]
struct Done {
    instructions: u64,
    system_calls: u64,
    /// Clock reads since the start of the server, unlike the others.
    clock_reads: u64,
}

/// Counts one cycle on a server program, unpipelined and in batches.
pub(crate) fn count(program: &Path, cycle: &Cycle) -> Result<Vec<Count>, String> {
    let program =
        fs::canonicalize(program).map_err(|error| format!("{}: {error}", program.display()))?;
    let folder = Folder::new();
    let (library, parts) = (folder.path("stopped_clock.so"), folder.path("parts"));
    compile(&folder.path("stopped_clock.c"), &library)?;
    let mut command = daemon::command_of("valgrind", &folder);
    command
        .args(["--quiet", "--tool=callgrind", "--collect-systime=yes"])
        .arg(format!("--callgrind-out-file={parts}"))
        .arg(program)
        .args(["--port", "0"])
        .env("LD_PRELOAD", library);
    let mut server = Daemon::spawn(folder, command, "");
    let port = server.wait_for_port();
    let mut client = Client::new(server.connect(port));
    client.end_window();
    // The windows of the last kind are empty: their counts are those of the end of a window.
    for batch in [Some(1), Some(BATCH), None] {
        // In the first window of a kind, buffers and tables get their final sizes.
        for _ in 0..=WINDOWS {
            batch.iter().for_each(|&batch| client.perform(cycle, batch));
            client.end_window();
        }
    }
    // The server answers this when it has written the counts of the last window.
    client.wire.ask("PING");
    let ends = (1..=1 + 3 * (WINDOWS + 1)).map(|number| Done::read(&format!("{parts}.{number}")));
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    let windows: Vec<Done> = ends.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let kinds: Vec<&[Done]> = windows.chunks(WINDOWS + 1).map(|kind| &kind[1..]).collect();
    let mut counts = cycle.counts(cycle.name, kinds[2], kinds[0]);
    counts.extend(cycle.counts(&format!("{}, {BATCH} together", cycle.name), kinds[2], kinds[1]));
    Ok(counts)
}

/// Compiles the library that is loaded into the server.
fn compile(source: &str, library: &str) -> Result<(), String> {
    fs::write(source, SOURCE).map_err(|error| format!("{source}: {error}"))?;
    let compiler = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o", library, source])
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    match compiler.status.success() {
        true => Ok(()),
        false => Err(format!("cc: {}", String::from_utf8_lossy(&compiler.stderr))),
    }
}

impl Done {
    /// Reads what callgrind has written at the end of a window.
    fn read(path: &str) -> Result<Done, String> {
        let text =
            fs::read_to_string(path).map_err(|error| format!("{path}: {error}: {REQUIREMENT}"))?;
        let numbers = |head: &str| {
            let numbers = text.lines().find_map(|line| line.strip_prefix(head));
            let numbers = numbers.ok_or(format!("{path}: no {head:?}"))?;
            let numbers = numbers.split_whitespace().map(str::parse::<u64>);
            numbers.collect::<Result<Vec<_>, _>>().map_err(|error| format!("{path}: {error}"))
        };
        // "events: Ir sysCount sysTime"; zeros at the end are left out.
        let (totals, reads) = (numbers("totals: ")?, numbers(READS)?);
        let at = |numbers: &[u64], at: usize| numbers.get(at).copied().unwrap_or_default();
        Ok(Done {
            instructions: at(&totals, 0),
            system_calls: at(&totals, 1),
            clock_reads: at(&reads, 0),
        })
    }

    /// With the clock reads since the window before.
    fn since(self, before: Done) -> Done {
        Done { clock_reads: self.clock_reads - before.clock_reads, ..self }
    }
}

impl Cycle {
    /// The counts of one cycle, from windows without requests and with them.
    fn counts(&self, name: &str, empty: &[Done], windows: &[Done]) -> Vec<Count> {
        let cycles = (WINDOW / self.commands.len()) as f64;
        let count = |counted: &str, decimals: i32, figure: fn(Done) -> u64| {
            let median = |windows: &[Done]| {
                let mut figures: Vec<u64> = windows.iter().map(|&done| figure(done)).collect();
                figures.sort_unstable();
                figures[WINDOWS / 2] as f64
            };
            let mean = (median(windows) - median(empty)) / cycles;
            let unit = 10_f64.powi(decimals);
            let (name, value) = (format!("{name}, {counted}"), (mean * unit).round() / unit);
            Count { name, value, is_exact: decimals > 0 }
        };
        vec![
            count("clock reads", 4, |done| done.clock_reads),
            count("instructions", 0, |done| done.instructions),
            count("system calls", 4, |done| done.system_calls),
        ]
    }
}

/// A client of the measured server.
struct Client {
    wire: Wire,
    /// The words in braces of commands, and what replaces them.
    words: Vec<(&'static str, String)>,
    /// Counts the fresh keys.
    keys: u32,
}

impl Client {
    /// Loads the scripts and takes the locks.
    fn new(mut wire: Wire) -> Client {
        let scripts = [
            ("{compare-and-delete}", COMPARE_AND_DELETE),
            ("{lock}", LOCK_3),
            ("{unlock}", UNLOCK_3),
        ];
        let mut words = vec![("{owner}", OWNER.to_owned())];
        for (word, script) in scripts {
            let reply = String::from_utf8(wire.call(&["SCRIPT", "LOAD", script]));
            let reply = reply.expect("a digest");
            words.push((word, reply.split("\r\n").nth(1).expect("a digest").to_owned()));
        }
        wire.ask(&format!("SET string {OWNER} PX {LEASE_MS}"));
        wire.ask(&format!("HSET hash {OWNER} 1"));
        wire.ask(&format!("PEXPIRE hash {LEASE_MS}"));
        Client { wire, words, keys: 0 }
    }

    /// Ends a window.
    fn end_window(&mut self) {
        self.wire.call(MARK);
    }

    /// Performs the cycle for one window; `batch` is the number of requests sent together.
    fn perform(&mut self, cycle: &Cycle, batch: usize) {
        let mut requests = Vec::new();
        while requests.len() < WINDOW {
            self.keys += 1;
            let key = format!("lock:{:08}", self.keys);
            for (command, reply) in cycle.commands {
                let command = command.replace("{fresh}", &key);
                let replace = |text: String, (word, by): &(&str, String)| text.replace(word, by);
                let command = self.words.iter().fold(command, replace);
                requests.push((request(&command.split(' ').collect::<Vec<_>>()), *reply));
            }
        }
        for batch in requests.chunks(batch) {
            let bytes: Vec<&[u8]> = batch.iter().map(|(bytes, _)| &bytes[..]).collect();
            self.wire.send_bytes(&bytes.concat());
            for (_, expected) in batch {
                let reply = self.wire.read_text();
                assert!(reply.starts_with(expected), "{}: {reply:?}", cycle.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_median_of_the_windows_without_their_end() {
        let done = |each| Done { instructions: each, system_calls: each, clock_reads: each };
        let cycle = Cycle { name: "two", commands: &[("A", ""), ("B", "")] };
        let empty = [5, 17, 5, 5, 5].map(done);
        let windows = [3_000, 485, 485, 0, 485].map(done);
        let counts = cycle.counts("two", &empty, &windows);
        let values: Vec<_> = counts.iter().map(|count| (&count.name[..], count.value)).collect();
        let expected =
            [("two, clock reads", 3.0), ("two, instructions", 3.0), ("two, system calls", 3.0)];
        assert_eq!(values, expected);
    }

    #[test]
    fn counts_of_a_window_are_read_from_the_file_of_callgrind() {
        let folder = Folder::new();
        let path = folder.path("part");
        let text = format!("events: Ir sysCount sysTime\n{READS}17\ntotals: 5000 3\n");
        fs::write(&path, text).expect("a file");
        let done = Done::read(&path).expect("counts");
        assert_eq!((done.instructions, done.system_calls, done.clock_reads), (5_000, 3, 17));
        fs::write(&path, "totals: 5000 3\n").expect("a file");
        assert!(Done::read(&path).is_err_and(|error| error.contains("clock reads")));
    }
}
