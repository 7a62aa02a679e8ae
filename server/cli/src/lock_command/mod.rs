//! `lockwheel lock`: runs a command while it holds a lock, on Lockwheel or on any server that
//! speaks the Redis protocol.
//!
//! `lock` asks the server, `keeper` renews the lease on a thread of its own, `command` runs the
//! command, `messages` writes what happens to standard error. A lease counts from the moment at
//! which the last request that was answered was sent.

mod command;
mod keeper;
mod lock;
mod messages;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use lockwheel_engine::timing::time::{self, SPAN_SYNTAX};

use self::lock::{Lock, Mode};
use crate::limits::{LOCK_LOOK_MAX, LOCK_LOOK_MIN};
use crate::redis_cli::server_options::{ServerOptions, without_uri};
use crate::run_command::UNUSABLE;

/// Exit status if the server cannot be asked: `EX_UNAVAILABLE`.
const UNAVAILABLE: u8 = 69;
/// Exit status if others hold the lock: `EX_TEMPFAIL`.
const NOT_ACQUIRED: u8 = 75;
/// Exit status if the lock was lost while the command ran.
const LOST: u8 = 76;

/// Shortest lease: renewals need time.
const LEASE_MIN: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  lockwheel lock nightly-report -- /usr/local/bin/report
  lockwheel lock backup --wait 0 -u rediss://backup:secret@locks.example -- backup.sh
  lockwheel lock gpu --permits 1/4 --wait 30s -- ./train

On Lockwheel the lock is a native one, and the command finds its fencing token in
LOCKWHEEL_FENCING_TOKEN. On another server it is a key that is set with NX and PX. A variable
REDISCLI_AUTH has the password.

Exit status: that of the command; 128 plus the number of the signal that ended it; 69 if the server
cannot be reached, 75 if others hold the lock, 76 if it was lost while the command ran; 125 if an
option is wrong or the server refuses, 126 if the command cannot be executed, 127 if it was not
found.";

/// Runs a command while it holds a lock
#[derive(Parser)]
#[command(name = "lockwheel lock", bin_name = "lockwheel lock", disable_help_flag = true)]
#[command(override_usage = "lockwheel lock [options] NAME [options] -- COMMAND [ARGUMENT ...]")]
#[command(after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    server: ServerOptions,
    /// The name of the lock: its key
    #[arg(required_unless_present = "exec_for")]
    name: Option<String>,
    /// How long to wait for the lock; 0 tries once [default: without end]
    #[arg(long, value_name = "span", value_parser = span)]
    wait: Option<Duration>,
    /// The lease, which is renewed while the command runs: how long the lock stays if this machine
    /// or its network fails
    #[arg(long, value_name = "span", value_parser = lease, default_value = "30s")]
    lease: Duration,
    /// Share the lock with others that share it (Lockwheel only)
    #[arg(long, conflicts_with = "permits")]
    shared: bool,
    /// Take n permits of a semaphore that has m (Lockwheel only)
    #[arg(long, value_name = "n/m", value_parser = permits)]
    permits: Option<(u32, u32)>,
    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, value_name = "action", default_value_t = OnLost::Terminate)]
    on_lost: OnLost,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The process that holds the lock for the command
    #[arg(long, hide = true)]
    exec_for: Option<i32>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// What happens to a command that has lost its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnLost {
    /// SIGTERM, then SIGKILL before the lease ends
    Terminate,
    /// The command goes on
    Continue,
}

fn span(text: &str) -> Result<Duration, String> {
    let span_ms = time::span(text.as_bytes()).and_then(|span| u64::try_from(span.0).ok());
    span_ms.map(Duration::from_millis).ok_or_else(|| format!("a span is {SPAN_SYNTAX}"))
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = span(text)?;
    if lease < LEASE_MIN { Err("the shortest lease is 1s".to_owned()) } else { Ok(lease) }
}

fn permits(text: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse().ok().filter(|_| !text.starts_with('+'));
    let parsed = text.split_once('/').and_then(|(n, m)| Some((number(n)?, number(m)?)));
    parsed
        .filter(|(taken, all)| (1..=*all).contains(taken))
        .ok_or_else(|| "permits are written n/m, such as 1/4, with n from 1 to m".to_owned())
}

/// The pause after which it is looked whether a lease is about to end.
fn look_interval(lease: Duration) -> Duration {
    (lease / 60).clamp(LOCK_LOOK_MIN, LOCK_LOOK_MAX)
}

/// Runs the subcommand with the arguments after its name.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let status = if error.use_stderr() { UNUSABLE } else { 0 };
            let _ = without_uri(error).print();
            return ExitCode::from(status);
        }
    };
    if let Some(holder) = arguments.exec_for {
        return ExitCode::from(command::replace_this_process(holder, &arguments.command));
    }
    arguments.server.hide_password();
    let Arguments { server, name, wait, lease, on_lost, command, .. } = arguments;
    let mode = match (arguments.shared, arguments.permits) {
        (true, _) => Mode::Shared,
        (_, Some((taken, all))) => Mode::Permits(taken, all),
        _ => Mode::Exclusive,
    };
    let lock = match Lock::new(server, name.unwrap_or_default(), mode, lease) {
        Ok(lock) => lock,
        Err(reason) => {
            messages::print(&reason);
            return ExitCode::from(UNUSABLE);
        }
    };
    ExitCode::from(command::run_with(lock, wait, on_lost, &command).unwrap_or_else(|reason| {
        messages::print(&reason);
        UNUSABLE
    }))
}
