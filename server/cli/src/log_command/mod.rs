//! `lockwheel log`: the subcommands for the log of a server.

mod aof;
mod deadlines;
mod export;
mod json;
mod progress;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};
use lockwheel::time_of_log;
use lockwheel_log::Directory;
use lockwheel_log::recovery::{Effects, Recovered, RecoveryError, recover};
use lockwheel_log::repair::{Lost, Repair};
use lockwheel_log::restore::restore;

use self::progress::LogMeter;
use crate::limits;

const EXAMPLES: &str = "\
The directory is the one that the directive appenddirname names, in that of dir: appendonlydir.

Examples:
  lockwheel log check /var/lib/lockwheel/appendonlydir
  lockwheel log export /var/lib/lockwheel/appendonlydir --format aof --output appendonly.aof
  lockwheel log repair /var/lib/lockwheel/appendonlydir --yes
  lockwheel log restore /backup/appendonlydir --dir /var/lib/lockwheel/appendonlydir

Exit status: 0 done, 1 the log is damaged or the command has failed, 2 wrong arguments.";

/// Checks, exports, repairs and restores the log of a server
#[derive(Parser)]
#[command(name = "lockwheel log", bin_name = "lockwheel log", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Read a log with all its checksums, and say what it contains or where it is damaged
    Check {
        /// The directory of the log; a server may use it
        directory: PathBuf,
    },
    /// Write the keys of a log as an append-only file of Redis, or as JSON
    Export {
        /// The directory of the log; a server may use it
        directory: PathBuf,
        /// The format
        #[arg(long, value_enum)]
        format: Format,
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// If the machine was restarted since the last change, count the time that has passed on
        /// the wall clock; without this none has passed
        #[arg(long)]
        trust_wall_clock: bool,
    },
    /// Cut a log off where its damage begins, so that a server can use it
    Repair {
        /// The directory of the log; no server may use it
        directory: PathBuf,
        /// Also if changes are lost that were durable
        #[arg(long)]
        yes: bool,
    },
    /// Copy a backup of a log directory into a new directory
    Restore {
        /// The backup: a copy of a log directory
        backup: PathBuf,
        /// The new directory, which has no log yet
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

/// What an export writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Commands that rebuild the keys on a redis-server, as in its append-only files
    Aof,
    /// A line of JSON for each key
    Json,
}

/// The reason for which a subcommand has failed, as it is printed.
struct Failure(String);

impl<E: Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs the subcommand with the arguments after `log`, the program's name first.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Standard output may be closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX));
        }
    };
    let done = match arguments.action {
        Action::Check { directory } => check(&directory),
        Action::Export { directory, format, output, trust_wall_clock } => {
            export::export(&directory, format, output.as_deref(), trust_wall_clock)
        }
        Action::Repair { directory, yes } => repair(&directory, yes),
        Action::Restore { backup, dir } => restore_backup(&backup, &dir),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(reason)) => {
            let _ = writeln!(io::stderr(), "lockwheel log: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Opens a log to read it.
fn open(path: &Path) -> Result<Directory, Failure> {
    Directory::read_only(path).map_err(|error| in_path(path, &error))
}

fn in_path(path: &Path, error: &dyn Display) -> Failure {
    Failure(format!("{}: {error}", path.display()))
}

/// Reads a log, which a server may use at the same time. `begin` is called before each attempt: a
/// server may remove files that a snapshot replaces while they are read.
fn read<T>(
    path: &Path,
    begin: impl Fn() -> T,
    apply: impl Fn(&mut T, Effects<'_>) -> Result<(), String>,
) -> Result<(Recovered, T), Failure> {
    let disk = open(path)?;
    let mut attempts = 0;
    loop {
        let meter = LogMeter::of_log(&disk, "reading");
        let mut state = begin();
        let result = recover(&disk, |effects| {
            meter.advance(effects.bytes.len() as u64);
            apply(&mut state, effects)
        });
        attempts += 1;
        match result {
            Ok(found) if found.snapshot.is_none() && found.segments.is_empty() => {
                return Err(in_path(path, &"there is no log"));
            }
            Ok(found) => return Ok((found, state)),
            Err(error) if attempts < limits::LOG_READ_ATTEMPTS && may_be_removed(&error) => {}
            Err(error) => return Err(in_path(path, &error)),
        }
    }
}

/// Whether a server may have removed a file after the directory was listed, or while it was read.
fn may_be_removed(error: &RecoveryError) -> bool {
    match error {
        RecoveryError::Io { error, .. } => {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
        }
        error => matches!(error, RecoveryError::Missing { .. } | RecoveryError::MissingSegment(_)),
    }
}

fn check(path: &Path) -> Result<(), Failure> {
    let (found, ()) = read(path, || (), |(), _| Ok(()))?;
    let mut out = io::stdout().lock();
    describe(&found, &mut out)?;
    Ok(writeln!(out, "no damage found")?)
}

/// Prints what a log contains.
fn describe(found: &Recovered, out: &mut dyn Write) -> io::Result<()> {
    let snapshot = found.snapshot.map(|position| format!("at position {position}"));
    writeln!(out, "snapshot: {}", snapshot.as_deref().unwrap_or("none"))?;
    let units = found.last - found.snapshot.unwrap_or(0);
    let plural = if units == 1 { "" } else { "s" };
    writeln!(out, "segments: {}, with {units} unit{plural} after that", found.segments.len())?;
    writeln!(out, "last position: {}", found.last)?;
    writeln!(out, "epoch: {}", found.epoch)?;
    if let Some(time) = found.time {
        writeln!(out, "lease clock: {} ms", time.lease_ms)?;
    }
    if let Some(marker) = &found.marker {
        writeln!(out, "guard at the next start: {}", marker.reason)?;
    }
    for name in &found.obsolete {
        writeln!(out, "not used: {name}")?;
    }
    if let Some(torn) = found.torn {
        let (bytes, offset, segment) = (torn.bytes, torn.offset, torn.segment);
        writeln!(
            out,
            "incomplete: the last {bytes} bytes of {segment}, from byte {offset} on; they are \
             being written, or the next start cuts them off"
        )?;
    }
    Ok(())
}

/// The seconds of the wall clock.
fn wall_seconds() -> u64 {
    u64::try_from(time_of_log(None, false).wall_us / 1_000_000).unwrap_or(0)
}

fn repair(path: &Path, may_lose_flushed: bool) -> Result<(), Failure> {
    let disk = Arc::new(Directory::existing(path).map_err(|error| in_path(path, &error))?);
    let failed = |error: RecoveryError| in_path(path, &error);
    let meter = LogMeter::of_log(&*disk, "reading");
    let repair = Repair::plan(disk, &mut |bytes| meter.advance(bytes)).map_err(failed)?;
    drop(meter);
    let mut out = io::stdout().lock();
    if repair.is_needless() {
        return Ok(writeln!(out, "no damage found")?);
    }
    for damage in repair.damages() {
        writeln!(out, "{damage}")?;
    }
    let (lost, left) = (repair.lost(), repair.left().last);
    writeln!(out, "{}", loss(lost, left))?;
    if lost.was_flushed && !may_lose_flushed {
        let reason = "nothing was changed: changes that were durable would be lost; repeat the \
                      command with --yes if there is no backup";
        return Err(reason.into());
    }
    for name in repair.carry_out(wall_seconds()).map_err(failed)? {
        writeln!(out, "kept as {name}")?;
    }
    Ok(writeln!(out, "the log ends with unit {left}")?)
}

/// What a repair removes from a log that ends with unit `left` then.
fn loss(lost: Lost, left: u64) -> String {
    let bytes = lost.bytes;
    let units = match lost.last.filter(|last| *last > left) {
        Some(last) => format!("units {} to {last}", left + 1),
        None => format!("possibly units after {left}"),
    };
    let durability = if lost.was_flushed { "" } else { ", which were being written" };
    format!("lost: {bytes} bytes, {units}{durability}")
}

fn restore_backup(backup: &Path, path: &Path) -> Result<(), Failure> {
    let source = open(backup)?;
    let directory = Directory::open(path).map_err(|error| in_path(path, &error))?;
    let meter = LogMeter::of_log(&source, "copying");
    let restored = restore(&source, &directory, wall_seconds(), &mut |bytes| meter.advance(bytes))
        .map_err(|error| in_path(path, &error))?;
    drop(meter);
    describe(&restored, &mut io::stdout().lock())?;
    Ok(())
}
