//! `lockwheel run`: runs a command, such as a test suite, with a server, and reports the locks that
//! the command leaves held.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use lockwheel::{
    Builder, Check, Confidence, Error, HeldLock, Journal, JournalEntry, Server, Settings,
};
use lockwheel_engine::command::syntax_error::{describe_unknown, describe_unknown_of_few, nearest};
use lockwheel_engine::instruments::journal::entry::story;
use lockwheel_engine::settings::find;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::launch::{self, Invocation, Source, load};
use crate::limits;
use crate::process_settings::ProcessSettings;
use crate::title::Title;

/// Exit status if the command has succeeded, but a check fails.
const CHECK_FAILED: u8 = 1;
/// Exit status if the command was not started. This and the next two are those of `env` and shells.
pub(crate) const UNUSABLE: u8 = 125;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// What the exit status adds to the number of the signal that has ended a command, as in shells.
pub(crate) const SIGNAL_STATUS_BASE: i32 = 128;

/// Options of the server that others may override.
const DEFAULTS: [&str; 6] = ["--port", "0", "--bind", "127.0.0.1", "--enable-test-commands", "yes"];

const HELP: &str = "\
Starts a server for a command and ends it with the command

Usage: lockwheel run [/path/to/redis.conf] [options] -- <command> [argument ...]

The command finds the server in the variables REDIS_URL, REDIS_HOST and REDIS_PORT. Locks that are
still held when the command ends are listed on standard error.

Options:
      --port <port>      Listen on this port; the default is any free port
      --frozen           Stop the server's clock; LOCKWHEEL CLOCK moves it
      --check <names>    Fail if one of these checks fails when the command has succeeded:
                         no-lock-held, never-two-holders, every-lock-has-a-lease,
                         released-only-by-owner, refused-by-own-token, no-waiter-lost,
                         renewed-before-expiry, lint (separated by commas)
      --env <name>       Set this variable to the URL, too (may be repeated)
      --<directive> ...  Any option of redis-server: --requirepass secret, --logfile redis.log
  -h, --help             Print this help

Examples:
  lockwheel run -- pytest
  lockwheel run --frozen --env CELERY_BROKER_URL -- cargo test
  lockwheel run --check no-lock-held,lint -- pytest

Exit status: that of the command; 128 plus the number of the signal that ended it, 127 if it was
not found, 126 if it cannot be executed, 125 if the server cannot be started; 1 if it succeeded and
a check fails.
";

/// The options of this subcommand, beside those of the server.
const OPTIONS: [&str; 3] = ["--check", "--env", "--frozen"];

/// The name of the check that there are no lint findings.
const LINT: &str = "lint";

/// What `--check` names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunCheck {
    Locks(Check),
    Lint,
}

/// The parsed command line.
struct RunOptions {
    frozen: bool,
    /// The checks for a command that has succeeded.
    checks: Vec<RunCheck>,
    /// Names of variables that are set to the URL.
    variables: Vec<String>,
    /// Options of the server.
    server_options: Vec<String>,
    command: Vec<OsString>,
}

/// Runs the subcommand with the arguments after `run`.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>, title: &Title) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "-h" || first == "--help") {
        let _ = io::stdout().write_all(HELP.as_bytes());
        return ExitCode::SUCCESS;
    }
    let options =
        RunOptions::read(arguments).inspect(|options| title.set_if_secret(&options.title()));
    let status = options.and_then(|options| run(&options)).unwrap_or_else(|reason| {
        print_error(&reason);
        UNUSABLE
    });
    ExitCode::from(status)
}

impl RunCheck {
    fn named(name: &str) -> Result<RunCheck, String> {
        let check = Check::ALL.into_iter().find(|check| check.name() == name);
        if let Some(check) = check {
            return Ok(RunCheck::Locks(check));
        }
        let known = [&Check::ALL.map(Check::name)[..], &[LINT]].concat();
        let is_lint = name == LINT;
        let unknown = || describe_unknown_of_few("check", name.as_bytes(), &known);
        is_lint.then_some(RunCheck::Lint).ok_or_else(unknown)
    }

    /// The violations and the journal entries that show them.
    fn violations(self, journal: &Journal<'_>) -> Result<(Vec<String>, Vec<JournalEntry>), Error> {
        match self {
            RunCheck::Locks(check) => {
                let result = journal.check(check)?;
                let sentence = format!("{}: {}", check.name(), result.sentence);
                Ok(((!result.holds).then_some(sentence).into_iter().collect(), result.story))
            }
            RunCheck::Lint => {
                let findings = journal.lint()?;
                let sentences = findings.iter().map(|it| format!("{LINT}: {}", it.sentence));
                let sentences = sentences.collect();
                Ok((sentences, findings.into_iter().flat_map(|it| it.entries).collect()))
            }
        }
    }
}

/// Whether a word is not an option of the server and resembles one of this subcommand.
fn is_misspelt(word: &str) -> bool {
    word.strip_prefix("--").is_some_and(|name| find(name).is_none())
        && nearest(word, &OPTIONS).is_some()
}

impl RunOptions {
    fn read(mut arguments: Vec<OsString>) -> Result<RunOptions, String> {
        let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
        let command: Vec<OsString> = arguments.drain(end..).skip(1).collect();
        if command.is_empty() {
            return Err("no command given; write it after --, as in \
                        `lockwheel run -- pytest`"
                .to_owned());
        }
        let mut options = RunOptions {
            frozen: false,
            checks: Vec::new(),
            variables: vec!["REDIS_URL".to_owned()],
            server_options: Vec::new(),
            command,
        };
        let mut words = arguments.into_iter().map(|word| word.to_string_lossy().into_owned());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--frozen" => options.frozen = true,
                "--env" => {
                    let name = words.next().filter(|name| !name.is_empty());
                    options.variables.push(name.ok_or("--env needs the name of a variable")?);
                }
                "--check" => {
                    let names = words.next().ok_or("--check needs the names of checks")?;
                    for name in names.split(',') {
                        options.checks.push(RunCheck::named(name)?);
                    }
                }
                _ if is_misspelt(&word) => {
                    return Err(describe_unknown("option", word.as_bytes(), &OPTIONS));
                }
                _ => options.server_options.push(word),
            }
        }
        Ok(options)
    }

    /// The process title: the command line without options.
    fn title(&self) -> String {
        let words = self.command.iter().map(|word| word.to_string_lossy());
        format!("run -- {}", words.collect::<Vec<_>>().join(" "))
    }

    /// Parses the options as `redis-server` does, with other defaults, for tests.
    fn settings(&self) -> Result<Settings, String> {
        let has_file = self.server_options.first().is_some_and(|first| !first.starts_with('-'));
        let (file, options) = self.server_options.split_at(usize::from(has_file));
        let defaults = DEFAULTS.map(str::to_owned);
        let args = [&["lockwheel".to_owned()], file, &defaults, options].concat();
        let mut read = |source: Source<'_>| match source {
            Source::Stdin => Err(io::Error::other("standard input is the command's")),
            Source::File(_) => load::read(source),
        };
        match launch::from_args(&args, &crate::environment(), &mut read) {
            Ok(Invocation::Serve { mut settings, warnings }) => {
                warnings.iter().for_each(|warning| print_error(&warning.to_string()));
                settings.allocator = crate::ALLOCATOR;
                Ok(*settings)
            }
            Ok(_) => Err("these are not options of a server".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn run(options: &RunOptions) -> Result<u8, String> {
    let mut settings = options.settings()?;
    let process = ProcessSettings::of(&settings);
    // Standard output belongs to the command: log only to a file.
    let log = process.logfile.is_some().then(|| crate::logging::start(&process));
    let _guard = log.transpose()?;
    crate::share_descriptors(&mut settings, &process);
    let mut command = Command::new(&options.command[0]);
    command.args(&options.command[1..]);
    let password = settings.requirepass.as_ref().map(|it| it.expose().to_owned());
    let listens = process.listens;
    let builder = Builder::from_settings(settings);
    let builder = if options.frozen { builder.frozen_clock() } else { builder };
    let server = builder.start().map_err(|error| format!("no server: {error}"))?;
    let url = url(&server, password.as_deref());
    command.envs(options.variables.iter().map(|name| (name, &url)));
    if listens {
        command.env("REDIS_HOST", server.addr().ip().to_string());
        command.env("REDIS_PORT", server.addr().port().to_string());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(|error| error.to_string())?.block_on(run_to_end(command))?;
    let has_succeeded = ended.as_ref().is_ok_and(ExitStatus::success);
    let checks = if has_succeeded { &*options.checks } else { &[] };
    let holds = report_violations(&server, checks)?;
    if !checks.contains(&RunCheck::Locks(Check::NoLockHeld)) {
        report_held_locks(&server);
    }
    server.stop();
    Ok(match ended {
        Ok(_) if !holds => CHECK_FAILED,
        Ok(status) => code(status),
        Err(error) => {
            let name = options.command[0].to_string_lossy();
            print_error(&format!("{name}: {error}"));
            let not_found = error.kind() == io::ErrorKind::NotFound;
            if not_found { NOT_FOUND } else { NOT_EXECUTABLE }
        }
    })
}

/// Runs the command to its end, and forwards signals to it.
async fn run_to_end(mut command: Command) -> Result<io::Result<ExitStatus>, String> {
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
                // The terminal has sent the signal to the command already.
                if !is_in_terminal_foreground() {
                    forward(&child, Signal::SIGINT);
                }
            }
            _ = terminate.recv() => forward(&child, Signal::SIGTERM),
        }
    }
}

/// Whether Ctrl-C at a terminal reaches the command too: the signal is sent to the process group.
pub(crate) fn is_in_terminal_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

fn forward(child: &Child, signal: Signal) {
    let process_id = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(process_id) = process_id {
        // Fails if the command has just ended.
        let _ = kill(Pid::from_raw(process_id), signal);
    }
}

pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_STATUS_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The URL with the password, since it is all that clients get.
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

/// Prints the violations of the checks, and one story of all of them; returns whether there are
/// none.
fn report_violations(server: &Server, checks: &[RunCheck]) -> Result<bool, String> {
    let (mut sentences, mut entries) = (Vec::new(), Vec::new());
    for check in checks {
        let violations = check.violations(&server.journal());
        let (more, shown) = violations.map_err(|error| format!("cannot check: {error}"))?;
        sentences.extend(more);
        entries.extend(shown);
    }
    sentences.iter().for_each(|sentence| print_error(sentence));
    entries.sort_by_key(|entry| entry.seq);
    entries.dedup_by_key(|entry| entry.seq);
    let _ = io::stderr().write_all(story(&entries, None).as_bytes());
    Ok(sentences.is_empty())
}

/// Prints the locks that are still held.
fn report_held_locks(server: &Server) {
    let is_lock = |lock: &HeldLock| lock.confidence > Confidence::Possible;
    let locks: Vec<HeldLock> = match server.journal().locks() {
        Ok(locks) => locks.into_iter().filter(is_lock).collect(),
        Err(error) => return print_error(&format!("cannot list the locks that are held: {error}")),
    };
    match locks.len() {
        0 => return,
        1 => print_error("a lock is still held:"),
        count => print_error(&format!("{count} locks are still held:")),
    }
    let shown = &locks[..locks.len().min(limits::LOCKS_SHOWN_MAX)];
    let lines: String = shown.iter().map(|lock| format!("  {}\n", describe(lock))).collect();
    let _ = io::stderr().write_all(lines.as_bytes());
    if shown.len() < locks.len() {
        print_error(&format!("and {} more", locks.len() - shown.len()));
    }
}

fn describe(lock: &HeldLock) -> String {
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

/// Prints an error to standard error, which may be closed.
fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "lockwheel run: {}", text.trim());
}
