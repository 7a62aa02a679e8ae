//! `lockwheel compat`: the command line of the compatibility suite.

mod list;
mod progress;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use lockwheel_compat::case::Case;
use lockwheel_compat::report::{Format, Report};
use lockwheel_compat::target::Target;
use lockwheel_compat::{
    Address, Error, Interrupt, Options, Suite, fuzz, key_prefix_of_run, record,
};
use tokio::signal::unix::{SignalKind, signal};

use self::progress::{FuzzMeter, Meter};

/// Something is not as it must be.
const NOT_GREEN: u8 = 1;
/// Nothing could be tried.
const UNUSABLE: u8 = 2;
/// Ended at once by a second Ctrl-C, as a shell says it.
const INTERRUPTED: i32 = 130;
/// What stands for an address that is not needed.
const NOWHERE: &str = "redis://localhost";

const EXAMPLES: &str = "\
Examples:
  lockwheel compat redis://127.0.0.1:6379
  lockwheel compat redis://127.0.0.1:6379 --only 'Redisson RLock' --only Expiry
  lockwheel compat redis://127.0.0.1:6379 --reference redis://127.0.0.1:7000
  lockwheel compat redis://127.0.0.1:6379 --format junit --output compat.xml
  lockwheel compat --list

It works in an empty database of the server, under a key prefix of its own, and leaves the server
as it found it. Exit status: 0 all is as it must be, 1 something is not, 2 it could not run.";

/// Tries whether a server that speaks Redis's protocol is safe for locks
#[derive(Parser)]
#[command(name = "lockwheel compat", bin_name = "lockwheel compat", after_help = EXAMPLES)]
struct Arguments {
    /// The server: redis://[[user]:password@]host[:port][/database] or unix://path
    #[arg(required_unless_present = "list")]
    url: Option<String>,
    /// A server that is right by definition: everything is sent to both and compared
    #[arg(long, value_name = "URL")]
    reference: Option<String>,
    /// Only what has this in its family, client or name (may be repeated)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Say what there is to be tried, and try nothing
    #[arg(long)]
    list: bool,
    /// How the report is written
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A command that the server lacks does not fail the run
    #[arg(long)]
    allow_missing: bool,
    /// Try what flushes scripts and functions as well, which belong to all databases
    #[arg(long)]
    allow_flush: bool,
    /// How many conversations are held at a time
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    jobs: usize,
    /// How many seconds a reply may take before a case fails
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    patience: f64,
    /// Play the cases of these files instead of those that are built in
    #[arg(long, value_name = "FILE")]
    cases: Vec<PathBuf>,
    /// Print the cases of --cases with what the server answers in the place of what they expect
    #[arg(long, requires = "cases")]
    record: bool,
    /// For how long each property under contention is tried
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// How many clients contend in a property
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// What decides what clients do in properties, and what --fuzz sends; another each time if
    /// none is given
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Instead of the suite, send so many commands drawn by chance to both servers, compare, and
    /// shorten whatever differs to a case
    #[arg(long, value_name = "N", requires = "reference")]
    fuzz: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Form {
    Text,
    Markdown,
    Json,
    Junit,
}

/// Runs it. `arguments` are those behind `compat`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let name = "lockwheel compat".to_owned();
    let parsed = Arguments::try_parse_from([name].into_iter().chain(arguments.iter().cloned()));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Its output may be closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(UNUSABLE));
        }
    };
    let status = options(&arguments).and_then(|options| {
        if arguments.record {
            return record(&options);
        }
        if let Some(count) = arguments.fuzz {
            return fuzz(options, count);
        }
        let suite = Suite::new(&options)?;
        if arguments.list {
            say(&list::write(&suite, arguments.format == Form::Json));
            return Ok(0);
        }
        obey_signals(&options.interrupt);
        let mut meter = Meter::new();
        let report = suite.run(&mut meter)?;
        meter.clear();
        tell(&arguments, &report)?;
        Ok(if report.is_green() { 0 } else { NOT_GREEN })
    });
    match status {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "lockwheel compat: {error}");
            ExitCode::from(UNUSABLE)
        }
    }
}

/// Writes the report where it was asked for.
fn tell(arguments: &Arguments, report: &Report) -> Result<(), Error> {
    let text = match arguments.format {
        Form::Text if arguments.output.is_none() && wants_colours() => report.coloured_text(),
        Form::Text => report.write(Format::Text),
        Form::Markdown => report.write(Format::Markdown),
        Form::Json => report.write(Format::Json),
        Form::Junit => report.write(Format::Junit),
    };
    let Some(path) = &arguments.output else {
        say(&text);
        return Ok(());
    };
    let written = fs::write(path, text);
    written.map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
    say(&format!("{} See {}.\n", report.summary(), path.display()));
    Ok(())
}

/// Says it, unless nobody listens any more.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn wants_colours() -> bool {
    let no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stdout().is_terminal() && !no && !dumb
}

/// The first signal ends the run as soon as it can clean up, the second at once.
fn obey_signals(interrupt: &Interrupt) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    // Before the run begins: a signal that comes early must not end the program as it stands.
    let signals = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    };
    let (Ok(mut end), Ok(mut terminate)) = signals else { return };
    let interrupt = interrupt.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            for _ in 0..2 {
                tokio::select! { _ = end.recv() => {} _ = terminate.recv() => {} }
                if interrupt.is_asked() {
                    std::process::exit(INTERRUPTED);
                }
                interrupt.ask();
                let advice = "ending, and cleaning up; once more to leave at once";
                let _ = writeln!(io::stderr(), "\nlockwheel compat: {advice}");
            }
        });
    });
}

fn fuzz(options: Options, count: usize) -> Result<u8, Error> {
    let Some(reference) = options.reference else {
        return Err(Error::Usage("--fuzz needs a --reference".to_owned()));
    };
    obey_signals(&options.interrupt);
    let (target, seed, interrupt) = (options.target, options.seed, options.interrupt);
    let manner = fuzz::Manner::Grammar;
    let options = fuzz::Options { target, reference, count, seed, manner, interrupt };
    let report = fuzz::fuzz(&options, &mut FuzzMeter::new())?;
    say(&report.text());
    Ok(if report.is_green() { 0 } else { NOT_GREEN })
}

fn record(options: &Options) -> Result<u8, Error> {
    let lost = |error| Error::Server(options.target.clone(), error);
    let prefix = key_prefix_of_run();
    let target = Target::explore(&options.target, &prefix, false).map_err(lost)?;
    for case in options.cases.iter().flatten() {
        let text = record::record(&target, case).map_err(lost)?;
        say(&format!("{text}\n"));
    }
    Ok(0)
}

fn options(arguments: &Arguments) -> Result<Options, Error> {
    let mut options = Options::new(arguments.url.as_deref().unwrap_or(NOWHERE))?;
    let address = |text: &String| Address::parse(text).map_err(Error::Usage);
    options.reference = arguments.reference.as_ref().map(address).transpose()?;
    options.only.clone_from(&arguments.only);
    options.allow_flush = arguments.allow_flush;
    options.seconds = arguments.seconds.unwrap_or(options.seconds);
    options.connections = arguments.connections.unwrap_or(options.connections);
    options.seed = arguments.seed.unwrap_or(options.seed);
    options.allow_missing = arguments.allow_missing;
    options.jobs = arguments.jobs;
    let patience = Duration::try_from_secs_f64(arguments.patience);
    let patience = patience.ok().filter(|patience| !patience.is_zero());
    let no_span = || Error::Usage(format!("--patience: no span of time: {}", arguments.patience));
    options.patience = patience.ok_or_else(no_span)?;
    let mut cases = Vec::new();
    for path in &arguments.cases {
        let file = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Error::Usage(format!("{file}: {error}")))?;
        let read = Case::parse_all(&file, &text);
        cases.extend(read.map_err(|mistake| Error::Usage(mistake.to_string()))?);
    }
    options.cases = Some(cases).filter(|_| !arguments.cases.is_empty());
    Ok(options)
}
