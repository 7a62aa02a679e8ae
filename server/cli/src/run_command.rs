//! `lockwheel run`: a server for a command, such as a test suite, for as long as that runs; and a
//! word on the locks it has left behind.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use lockwheel::{Builder, HeldLock, Server, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::launch::{self, Invocation, Source, load};
use crate::limits;
use crate::process_settings::ProcessSettings;
use crate::title::Title;

/// The command has not been tried. This and the next two are what `env` and shells end with.
const UNUSABLE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// What shells add to the signal that ended a command.
const BY_SIGNAL: i32 = 128;

/// What options may change.
const DEFAULTS: [&str; 6] = ["--port", "0", "--bind", "127.0.0.1", "--enable-test-commands", "yes"];

const HELP: &str = "\
Starts a server for a command and ends it with the command

Usage: lockwheel run [/path/to/redis.conf] [options] -- <command> [argument ...]

The command finds the server in REDIS_URL, REDIS_HOST and REDIS_PORT. Locks that are still held
when it ends are named on standard error.

Options:
      --port <port>      Listen there; at a free port unless given
      --frozen           The clock stands still until LOCKWHEEL CLOCK moves it
      --env <name>       Set this variable to the URL as well (may be repeated)
      --<directive> ...  Any option of redis-server: --requirepass secret, --logfile redis.log
  -h, --help             Print this

Examples:
  lockwheel run -- pytest
  lockwheel run --frozen --env CELERY_BROKER_URL -- cargo test

Exit status: that of the command; 128 and its number if a signal ended it, 127 if it was not found,
126 if it cannot be run, 125 if there is no server.
";

/// What the command line asks for.
struct Order {
    frozen: bool,
    /// Names of variables for the URL.
    variables: Vec<String>,
    /// The server's.
    options: Vec<String>,
    command: Vec<OsString>,
}

/// Runs it. `arguments` are those behind `run`.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>, title: &Title) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "-h" || first == "--help") {
        let _ = io::stdout().write_all(HELP.as_bytes());
        return ExitCode::SUCCESS;
    }
    let order = Order::read(arguments).inspect(|order| title.set_secretly(&order.title()));
    let status = order.and_then(|order| run(&order)).unwrap_or_else(|reason| {
        complain(&reason);
        UNUSABLE
    });
    ExitCode::from(status)
}

impl Order {
    fn read(mut arguments: Vec<OsString>) -> Result<Order, String> {
        let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
        let command: Vec<OsString> = arguments.drain(end..).skip(1).collect();
        if command.is_empty() {
            return Err("there is no command: it stands behind --, as in \
                        `lockwheel run -- pytest`"
                .to_owned());
        }
        let mut order = Order {
            frozen: false,
            variables: vec!["REDIS_URL".to_owned()],
            options: Vec::new(),
            command,
        };
        let mut words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--frozen" => order.frozen = true,
                "--env" => {
                    let name = words.next().filter(|name| !name.is_empty());
                    order.variables.push(name.ok_or("--env needs the name of a variable")?);
                }
                _ => order.options.push(word),
            }
        }
        Ok(order)
    }

    /// The line that was typed, without the options.
    fn title(&self) -> String {
        let words = self.command.iter().map(|word| word.to_string_lossy());
        format!("run -- {}", words.collect::<Vec<_>>().join(" "))
    }

    /// As `redis-server` would read the options, but for what is better for a test.
    fn settings(&self) -> Result<Settings, String> {
        let has_file = self.options.first().is_some_and(|first| !first.starts_with('-'));
        let (file, options) = self.options.split_at(usize::from(has_file));
        let defaults = DEFAULTS.map(str::to_owned);
        let args = [&["lockwheel".to_owned()], file, &defaults, options].concat();
        let mut read = |source: Source<'_>| match source {
            Source::Stdin => Err(io::Error::other("standard input is the command's")),
            Source::File(_) => load::read(source),
        };
        match launch::from_args(&args, &crate::environment(), &mut read) {
            Ok(Invocation::Serve { mut settings, warnings }) => {
                warnings.iter().for_each(|warning| complain(&warning.to_string()));
                settings.allocator = crate::ALLOCATOR_NAME;
                Ok(*settings)
            }
            Ok(_) => Err("these are no options of a server".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn run(order: &Order) -> Result<u8, String> {
    let mut settings = order.settings()?;
    let process = ProcessSettings::of(&settings);
    // The command's output is its own: there is a log if there is a file for it.
    let log =
        process.logfile.as_deref().map(|path| crate::logging::start(Some(path), process.loglevel));
    let _guard = log.transpose().map_err(|error| format!("Can't open the log file: {error}"))?;
    settings.maxclients = crate::make_room_for(settings.maxclients);
    let mut command = Command::new(&order.command[0]);
    command.args(&order.command[1..]);
    let password = settings.requirepass.as_ref().map(|it| it.expose().to_owned());
    let listens = process.listens;
    let builder = Builder::from_settings(settings);
    let builder = if order.frozen { builder.frozen_clock() } else { builder };
    let server = builder.start().map_err(|error| format!("no server: {error}"))?;
    let url = url(&server, password.as_deref());
    command.envs(order.variables.iter().map(|name| (name, &url)));
    if listens {
        command.env("REDIS_HOST", server.addr().ip().to_string());
        command.env("REDIS_PORT", server.addr().port().to_string());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(|error| error.to_string())?.block_on(attend(command))?;
    tell_of_locks(&server);
    server.stop();
    Ok(match ended {
        Ok(status) => code(status),
        Err(error) => {
            let name = order.command[0].to_string_lossy();
            complain(&format!("{name}: {error}"));
            let not_found = error.kind() == io::ErrorKind::NotFound;
            if not_found { NOT_FOUND } else { NOT_EXECUTABLE }
        }
    })
}

/// Runs the command to its end, and passes on to it what this program is told to do.
async fn attend(mut command: Command) -> Result<io::Result<ExitStatus>, String> {
    let caught = |kind| signal(kind).map_err(|error| error.to_string());
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status),
            _ = interrupt.recv() => {
                // Twice would be taken for impatience.
                if !is_in_front_of_a_terminal() {
                    pass_on(&child, Signal::SIGINT);
                }
            }
            _ = terminate.recv() => pass_on(&child, Signal::SIGTERM),
        }
    }
}

/// Whether Ctrl-C at a terminal reaches the command by itself: it goes to all of the group.
fn is_in_front_of_a_terminal() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

fn pass_on(child: &Child, signal: Signal) {
    let process_id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(process_id) = process_id {
        // It may have ended just now.
        let _ = kill(Pid::from_raw(process_id), signal);
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// With the password in it: clients are configured by this alone.
fn url(server: &Server, password: Option<&str>) -> String {
    let url = server.url();
    let Some((scheme, rest)) = url.split_once("://") else { return url };
    let Some(password) = password else { return url };
    let escaped: String = password
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("{scheme}://:{escaped}@{rest}")
}

/// Says which locks are still held, if the server knows.
fn tell_of_locks(server: &Server) {
    let locks = match server.journal().locks() {
        Ok(locks) => locks,
        Err(error) => return complain(&format!("which locks are held is not known: {error}")),
    };
    match locks.len() {
        0 => return,
        1 => complain("a lock is still held:"),
        count => complain(&format!("{count} locks are still held:")),
    }
    let shown = &locks[..locks.len().min(limits::LOCKS_TOLD_MAX)];
    let lines: String = shown.iter().map(|lock| format!("  {}\n", described(lock))).collect();
    let _ = io::stderr().write_all(lines.as_bytes());
    if shown.len() < locks.len() {
        complain(&format!("and {} more", locks.len() - shown.len()));
    }
}

fn described(lock: &HeldLock) -> String {
    let key = lock.key.escape_debug();
    let database = match lock.database {
        0 => String::new(),
        number => format!(" in database {number}"),
    };
    let name = Some(&lock.name).filter(|name| !name.is_empty());
    let name = name.map(|name| format!(" ({})", name.escape_debug())).unwrap_or_default();
    let lease = match lock.lease_ms {
        Some(span) => format!("for {span} ms more"),
        None => "without a lease".to_owned(),
    };
    let waiting = match lock.waiting.len() {
        0 => String::new(),
        count => format!("; {count} waiting"),
    };
    let (owner, client) = (lock.owner.escape_debug(), lock.client);
    format!("'{key}'{database} by '{owner}', client {client}{name}, {lease}{waiting}")
}

/// To standard error, which may be closed.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "lockwheel run: {}", text.trim());
}
