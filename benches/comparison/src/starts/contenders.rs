//! Who is started, and how. It must not know what becomes of the figures.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockwheel::Server;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::{daemon, redis_server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Outcome, Span};

/// A server that does not answer by then never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks whether it answers.
const GLANCE: Duration = Duration::from_micros(50);
/// The status of a project whose language is not installed.
const NO_TOOLS: i32 = 77;

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

pub(crate) struct Contender {
    /// With its version.
    pub(crate) name: String,
    /// The server; `PORT` among the words is where it is to listen.
    process: Vec<String>,
    /// Says for each of so many starts within it how long they took; the number is the last word.
    within: Vec<String>,
}

/// Stands for the port among the words of a command.
const PORT: &str = "PORT";

/// Everybody who can be had, Lockwheel first.
pub(crate) fn find(alone: bool) -> Outcome<Vec<Contender>> {
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let program = daemon::program().to_string_lossy().into_owned();
    let mut all = vec![Contender {
        name: "Lockwheel".to_owned(),
        process: words(&[&program, "--port", PORT, "--bind", "127.0.0.1"]),
        within: words(&[&this, "within"]),
    }];
    if alone {
        return Ok(all);
    }
    all.extend(redis()?);
    all.extend(double("miniredis", &[".installed/miniredis", PORT])?);
    all.extend(double("fakeredis", &[".venv/bin/python", "server.py", PORT])?);
    Ok(all)
}

fn redis() -> Outcome<Option<Contender>> {
    let Some(mut process) = redis_server::program() else {
        eprintln!("redis-server: not found");
        return Ok(None);
    };
    let output = Command::new(&process[0]).args(&process[1..]).arg("--version").output()?;
    let version = String::from_utf8(output.stdout)?;
    let version = version.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or_default();
    process.extend(words(&["--port", PORT, "--bind", "127.0.0.1"]));
    process.extend(words(&["--save", "", "--appendonly", "no"]));
    Ok(Some(Contender { name: format!("Redis {version}"), process, within: Vec::new() }))
}

/// One of those that the compatibility suite is run on.
fn double(folder: &str, process: &[&str]) -> Outcome<Option<Contender>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/compatibility")
        .join(folder)
        .canonicalize()?;
    let run = folder.join("run");
    let name = text_of(Command::new(&run).arg("--version"))?.trim().to_owned();
    // Installs it.
    let status = Command::new(&run).args(["--starts", "1"]).stdout(Stdio::null()).status()?;
    if status.code() == Some(NO_TOOLS) {
        eprintln!("{name}: its language is not installed");
        return Ok(None);
    }
    let place = |word: &&str| match folder.join(word) {
        path if path.exists() => path.to_string_lossy().into_owned(),
        _ => (*word).to_owned(),
    };
    let process = process.iter().map(place).collect();
    let within = words(&[&run.to_string_lossy(), "--starts"]);
    Ok(Some(Contender { name, process, within }))
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

impl Contender {
    /// Starts it as a process, and ends that.
    pub(crate) fn run_process(&self) -> Outcome<Span> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let port = address.port().to_string();
        let place = |word: &String| if word == PORT { port.clone() } else { word.clone() };
        let mut command = Command::new(&self.process[0]);
        command.args(self.process[1..].iter().map(place));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.current_dir(std::env::temp_dir());
        let begin = Instant::now();
        let mut server = Running(command.spawn()?);
        while ping(address).is_err() {
            if begin.elapsed() > PATIENCE || server.0.try_wait()?.is_some() {
                return Err(format!("{command:?} does not answer").into());
            }
            std::thread::sleep(GLANCE);
        }
        let (start, answered) = (begin.elapsed(), Instant::now());
        kill(Pid::from_raw(i32::try_from(server.0.id())?), Signal::SIGTERM)?;
        server.0.wait()?;
        Ok(Span { start, stop: answered.elapsed() })
    }

    /// Starts and ends it within a fresh process, so often; by what is called to start it.
    pub(crate) fn run_within(&self, starts: u32) -> Outcome<Vec<(String, Vec<Span>)>> {
        let Some((program, rest)) = self.within.split_first() else { return Ok(Vec::new()) };
        let told = text_of(Command::new(program).args(rest).arg(starts.to_string()))?;
        let mut all: Vec<(String, Vec<Span>)> = Vec::new();
        for line in told.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(start), Some(stop)) = (words.next(), words.next(), words.next())
            else {
                return Err(format!("{program} says {line:?}").into());
            };
            let span = |text: &str| text.parse().map(Duration::from_nanos);
            let span = Span { start: span(start)?, stop: span(stop)? };
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, spans)) => spans.push(span),
                None => all.push((name.to_owned(), vec![span])),
            }
        }
        Ok(all)
    }
}

/// A server that ends with this, if it has not before.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks for a reply on a connection of its own.
fn ping(address: SocketAddr) -> Outcome<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(PING)?;
    let mut reply = [0; PONG.len()];
    stream.read_exact(&mut reply)?;
    if reply == PONG { Ok(()) } else { Err("no PONG".into()) }
}

/// Starts and ends Lockwheel within this process so often, and says how long it took.
pub(crate) fn tell_starts(starts: u32) -> Outcome<()> {
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
