//! The clients that load servers: processes of their languages, which write their histories.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use lockwheel_compat::judge::history::{self, Event};
use lockwheel_compat::time;

/// The time within which the clients are installed and take locks.
const INSTALL_TIMEOUT_US: i64 = 900_000_000;
/// The time within which they end. A request takes ten seconds at most.
const END_TIMEOUT_US: i64 = 120_000_000;

/// A client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// redis-py and its class `Lock`
    RedisPy,
    /// Redisson and its `RLock`, with leases and with the watchdog
    Redisson,
    /// The same, which finds the master among the servers itself
    RedissonReplicated,
    /// Redisson with its usual retries, whose locks are not judged
    RedissonRetries,
    /// Jedis, with a recipe
    Jedis,
    /// Lettuce, with a recipe
    Lettuce,
    /// ioredis, with a recipe
    Ioredis,
    /// go-redis, with a recipe
    GoRedis,
    /// redsync on go-redis
    Redsync,
}

impl Library {
    fn folder(self) -> &'static str {
        match self {
            Library::RedisPy => "python",
            Library::Redisson | Library::RedissonReplicated | Library::RedissonRetries => "java",
            Library::Jedis | Library::Lettuce => "java",
            Library::Ioredis => "node",
            Library::GoRedis | Library::Redsync => "go",
        }
    }

    /// The word for it: in options, in the arguments of its program, and in the names of owners.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// What all clients must know.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Where the servers are: `HOST:PORT`, or what `tests/kills/README.md` names.
    pub servers: &'a dyn Fn(Library) -> String,
    /// The seed of the requests.
    pub seed: u32,
    /// The threads of each process.
    pub threads: usize,
    /// The shortest and the longest lease.
    pub lease_ms: (u32, u32),
    /// How long a client waits for a reply.
    pub reply_timeout_ms: u32,
}

/// A request and its answer.
pub struct Record {
    /// The epoch of the lock.
    pub epoch: u64,
    /// The event. A check is a renewal: its answer says whether the client still holds the lock.
    pub event: Event,
    /// Whether it is a check.
    pub is_check: bool,
    /// Whether the request may take effect after it was given up, as long as the server runs.
    pub is_late: bool,
}

/// A line of a client.
enum Line {
    Record(Record),
    Epoch {
        thread: String,
        number: u64,
    },
    Problem(String),
    /// The process has ended.
    End,
}

/// All client processes.
pub struct Load {
    processes: Vec<Process>,
    lines: Receiver<Line>,
    /// Keeps the channel open if there are no clients.
    sender: Sender<Line>,
    epoch: u64,
    /// The epoch of each thread.
    threads: BTreeMap<String, u64>,
    records: Vec<Record>,
    ended: usize,
}

struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Load {
    /// Starts the clients, and waits until all their threads take locks.
    pub fn start(libraries: &[Library], settings: Settings<'_>) -> Result<Load, String> {
        let (sender, lines) = mpsc::channel();
        let mut load = Load {
            processes: Vec::new(),
            lines,
            sender,
            epoch: 0,
            threads: BTreeMap::new(),
            records: Vec::new(),
            ended: 0,
        };
        for &library in libraries {
            load.processes.push(start(library, &settings, load.sender.clone())?);
        }
        load.send_epoch()?;
        let all = settings.threads * libraries.len();
        let started = |load: &Load| load.threads.len() == all;
        load.read_until(time::now_us() + INSTALL_TIMEOUT_US, started)?;
        if load.threads.len() < all {
            return Err("the clients do not take locks".to_owned());
        }
        Ok(load)
    }

    /// Lets that time pass.
    pub fn pass(&mut self, span: Duration) -> Result<(), String> {
        let span_us = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        self.read_until(time::now_us() + span_us, |_| false)
    }

    /// Lets the clients use other locks.
    pub fn begin_epoch(&mut self) -> Result<(), String> {
        self.epoch += 1;
        self.send_epoch()
    }

    /// The records so far.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// The oldest epoch of which a client uses locks.
    pub fn oldest_epoch(&self) -> u64 {
        self.threads.values().copied().min().unwrap_or(0)
    }

    /// Ends the clients. Returns the last records.
    pub fn end(mut self) -> Result<Vec<Record>, String> {
        self.processes.iter_mut().for_each(|process| process.input = None);
        let all = self.processes.len();
        self.read_until(time::now_us() + END_TIMEOUT_US, |load| load.ended == all)?;
        if self.ended < all {
            return Err("a client does not end".to_owned());
        }
        for process in &mut self.processes {
            match process.child.wait() {
                Ok(status) if status.success() => {}
                other => return Err(format!("a client has failed: {other:?}")),
            }
        }
        Ok(self.take_records())
    }

    fn send_epoch(&mut self) -> Result<(), String> {
        for process in &mut self.processes {
            let Some(input) = &mut process.input else { continue };
            let sent = writeln!(input, "{}", self.epoch).and_then(|()| input.flush());
            sent.map_err(|error| format!("a client has ended: {error}"))?;
        }
        Ok(())
    }

    /// Reads lines until that time or until `done`.
    fn read_until(&mut self, until_us: i64, done: impl Fn(&Load) -> bool) -> Result<(), String> {
        while !done(self) {
            let left_us = u64::try_from(until_us - time::now_us()).unwrap_or(0);
            match self.lines.recv_timeout(Duration::from_micros(left_us)) {
                Ok(Line::Record(record)) => self.records.push(record),
                Ok(Line::Epoch { thread, number }) => {
                    self.threads.insert(thread, number);
                }
                Ok(Line::Problem(problem)) => return Err(problem),
                Ok(Line::End) if self.processes.iter().all(|it| it.input.is_none()) => {
                    self.ended += 1;
                }
                Ok(Line::End) | Err(RecvTimeoutError::Disconnected) => {
                    return Err("a client has ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => return Ok(()),
            }
        }
        Ok(())
    }
}

fn start(
    library: Library,
    settings: &Settings<'_>,
    lines: Sender<Line>,
) -> Result<Process, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kills").join(library.folder());
    let Settings { servers, seed, threads, lease_ms: (least_ms, most_ms), .. } = settings;
    let mut child = Command::new(folder.join("run"))
        .args([library.name(), servers(library), seed.to_string(), threads.to_string()])
        .args([least_ms, most_ms, &settings.reply_timeout_ms].map(u32::to_string))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{library:?} cannot be started: {error}"))?;
    let input = child.stdin.take();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || read(output, &lines));
    }
    Ok(Process { child, input })
}

/// Sends each line of the output.
fn read(output: ChildStdout, lines: &Sender<Line>) {
    for line in BufReader::new(output).lines() {
        let line = match line {
            Ok(line) => parse(&line).unwrap_or_else(|problem| {
                Line::Problem(format!("a client has written {line:?}: {problem}"))
            }),
            Err(error) => Line::Problem(format!("the output of a client: {error}")),
        };
        if lines.send(line).is_err() {
            return;
        }
    }
    let _ = lines.send(Line::End);
}

fn parse(line: &str) -> Result<Line, String> {
    if let Some(problem) = line.strip_prefix("problem ") {
        return Ok(Line::Problem(problem.to_owned()));
    }
    if let Some(epoch) = line.strip_prefix("epoch ") {
        let (thread, number) = epoch.split_once(' ').ok_or("an epoch has a number")?;
        let number = number.parse().map_err(|_| "an epoch has a number")?;
        return Ok(Line::Epoch { thread: thread.to_owned(), number });
    }
    let (is_late, text) = match line.strip_prefix("late ") {
        Some(text) => (true, text),
        None => (false, line),
    };
    let is_check = text.contains(" check ");
    // Only the answer counts.
    let text = text.replace(" check held", " renew 0s granted").replace(" check ", " renew 0s ");
    let events = history::read(&text).map_err(|error| error.to_string())?;
    let event = events.into_iter().next().ok_or("a line has an event")?;
    let epoch = event.lock.split('-').nth(1).and_then(|number| number.parse().ok());
    let epoch = epoch.ok_or("the name of a lock has an epoch")?;
    Ok(Line::Record(Record { epoch, event, is_check, is_late }))
}

#[cfg(test)]
mod tests {
    use super::{Line, parse};

    #[test]
    fn lines_of_clients_are_parsed() {
        let record = |line: &str| {
            let Ok(Line::Record(it)) = parse(line) else { panic!("{line}") };
            format!("{} {} {} {}", it.epoch, it.is_check, it.is_late, it.event)
        };
        let event = "1..2 plain-7-0 a.1 acquire 1s granted";
        assert_eq!(record(event), format!("7 false false {event}"));
        let late = "late 1..2 lease-8-1 b.1 release unknown";
        assert_eq!(record(late), "8 false true 1..2 lease-8-1 b.1 release unknown");
        let lost = "1..2 lease-8-1 b.1 check not-owner";
        assert_eq!(record(lost), "8 true false 1..2 lease-8-1 b.1 renew 0s not-owner");
        let held = "1..2 lease-8-1 b.1 check held";
        assert_eq!(record(held), "8 true false 1..2 lease-8-1 b.1 renew 0s granted");
        for wrong in ["", "x", "1..2 plain a acquire 1s granted", "epoch a", "1..2 l-1-1 a check x"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(matches!(parse("epoch a 3"), Ok(Line::Epoch { number: 3, .. })));
        assert!(matches!(parse("problem a: b"), Ok(Line::Problem(_))));
    }
}
