//! The servers that are measured, and how each is started.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockwheel::Server;
use lockwheel_comparison::{Outcome, ping};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::{daemon, redis_server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Times;

/// The longest time to wait for a server to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause between two connection attempts.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// The exit status of a `run` script without its language installed.
const NOT_INSTALLED: i32 = 77;

pub(crate) struct MeasuredServer {
    /// The name with the version.
    pub(crate) name: String,
    /// The command of the server, with [`PORT`] in place of its port.
    process: Vec<String>,
    /// Command that starts servers within a process and prints their times; the number of starts is
    /// appended.
    within: Vec<String>,
}

/// The placeholder of the port in a command.
const PORT: &str = "PORT";

/// Finds the installed servers, Lockwheel first.
pub(crate) fn find(alone: bool) -> Outcome<Vec<MeasuredServer>> {
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let program = daemon::program().to_string_lossy().into_owned();
    let mut all = vec![MeasuredServer {
        name: "Lockwheel".to_owned(),
        process: words(&[&program, "--port", PORT, "--bind", "127.0.0.1"]),
        within: words(&[&this, "within"]),
    }];
    if alone {
        return Ok(all);
    }
    all.extend(redis()?);
    all.extend(test_double("miniredis", &[".installed/miniredis", PORT])?);
    all.extend(test_double("fakeredis", &[".venv/bin/python", "server.py", PORT])?);
    Ok(all)
}

fn redis() -> Outcome<Option<MeasuredServer>> {
    let Some(mut process) = redis_server::program() else {
        eprintln!("redis-server: not found");
        return Ok(None);
    };
    let output = Command::new(&process[0]).args(&process[1..]).arg("--version").output()?;
    let version = String::from_utf8(output.stdout)?;
    let version = version.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or_default();
    process.extend(words(&["--port", PORT, "--bind", "127.0.0.1"]));
    process.extend(words(&["--save", "", "--appendonly", "no"]));
    Ok(Some(MeasuredServer { name: format!("Redis {version}"), process, within: Vec::new() }))
}

/// Finds one of the other servers for tests on which the compatibility suite runs.
fn test_double(folder: &str, process: &[&str]) -> Outcome<Option<MeasuredServer>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/compatibility")
        .join(folder)
        .canonicalize()?;
    let run = folder.join("run");
    let name = text_of(Command::new(&run).arg("--version"))?.trim().to_owned();
    // The first run installs the server.
    let status = Command::new(&run).args(["--starts", "1"]).stdout(Stdio::null()).status()?;
    if status.code() == Some(NOT_INSTALLED) {
        eprintln!("{name}: its language is not installed");
        return Ok(None);
    }
    let resolve = |word: &&str| match folder.join(word) {
        path if path.exists() => path.to_string_lossy().into_owned(),
        _ => (*word).to_owned(),
    };
    let process = process.iter().map(resolve).collect();
    let within = words(&[&run.to_string_lossy(), "--starts"]);
    Ok(Some(MeasuredServer { name, process, within }))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn text_of(command: &mut Command) -> Outcome<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{command:?}: {}", output.status).into())
    }
}

impl MeasuredServer {
    /// Starts the server as a process, and ends it.
    pub(crate) fn run_process(&self) -> Outcome<Times> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let port = address.port().to_string();
        let replace_port = |word: &String| if word == PORT { port.clone() } else { word.clone() };
        let mut command = Command::new(&self.process[0]);
        command.args(self.process[1..].iter().map(replace_port));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(std::env::temp_dir());
        let begin = Instant::now();
        let mut server = ServerProcess(command.spawn()?);
        while ping(address).is_err() {
            if begin.elapsed() > START_TIMEOUT || server.0.try_wait()?.is_some() {
                return Err(format!("{command:?} does not answer").into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let (start, answered) = (begin.elapsed(), Instant::now());
        kill(Pid::from_raw(i32::try_from(server.0.id())?), Signal::SIGTERM)?;
        server.0.wait()?;
        Ok(Times { start, stop: answered.elapsed() })
    }

    /// Starts and ends it this often within a fresh process. Returns the times by start function.
    pub(crate) fn run_within(&self, starts: u32) -> Outcome<Vec<(String, Vec<Times>)>> {
        let Some((program, rest)) = self.within.split_first() else { return Ok(Vec::new()) };
        let output = text_of(Command::new(program).args(rest).arg(starts.to_string()))?;
        let mut all: Vec<(String, Vec<Times>)> = Vec::new();
        for line in output.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(start), Some(stop)) = (words.next(), words.next(), words.next())
            else {
                return Err(format!("{program}: unexpected line {line:?}").into());
            };
            let span = |text: &str| text.parse().map(Duration::from_nanos);
            let span = Times { start: span(start)?, stop: span(stop)? };
            match all.iter_mut().find(|(existing, _)| existing == name) {
                Some((_, spans)) => spans.push(span),
                None => all.push((name.to_owned(), vec![span])),
            }
        }
        Ok(all)
    }
}

/// A server process that is ended on drop.
struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts and ends Lockwheel within this process this number of times, and prints the times.
pub(crate) fn print_starts(starts: u32) -> Outcome<()> {
    for _ in 0..starts {
        let begin = Instant::now();
        let server = Server::builder().start()?;
        ping(server.addr())?;
        let (start, answered) = (begin.elapsed(), Instant::now());
        drop(server);
        println!("Server::start() {} {}", start.as_nanos(), answered.elapsed().as_nanos());
    }
    Ok(())
}
