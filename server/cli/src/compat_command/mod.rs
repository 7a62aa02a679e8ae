//! `lockwheel compat`: the command line of the compatibility suite.

mod list;
mod progress;
pub(crate) mod shared;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use lockwheel_compat::cases::case::Case;
use lockwheel_compat::cases::record;
use lockwheel_compat::report::{Format, Report};
use lockwheel_compat::wire::target::Target;
use lockwheel_compat::{Address, Error, Options, REPLY_TIMEOUT, Suite, fuzz, key_prefix_of_run};

use self::progress::{FuzzMeter, SuiteMeter};
use self::shared::{FOUND, Span, advised, complete_password, handle_signals, print, wants_colours};
#[cfg(feature = "tls")]
use crate::tls_client::TlsOptions;

/// The name of the command.
const NAME: &str = "lockwheel compat";
/// The URL if none is needed.
const UNUSED_URL: &str = "redis://localhost";

const EXAMPLES: &str = "\
Examples:
  lockwheel compat redis://127.0.0.1:6379
  lockwheel compat redis://127.0.0.1:6379 --quick
  lockwheel compat redis://127.0.0.1:6379 --only 'Redisson RLock' --only Expiry
  lockwheel compat redis://127.0.0.1:6379 --reference redis://127.0.0.1:7000
  lockwheel compat redis://127.0.0.1:6379 --format junit --output compat.xml
  lockwheel compat --list

The suite uses an empty database of the server and a key prefix of its own, and removes its keys at
the end. The environment variable REDISCLI_AUTH can hold the password.

Exit status: 0 all cases have passed, 1 a case has failed or was not reached in time, 2 the suite
could not run.";

/// Looks for behaviour that breaks locks in a server that speaks the Redis protocol
#[derive(Parser)]
#[command(name = "lockwheel compat", bin_name = "lockwheel compat", after_help = EXAMPLES)]
struct Arguments {
    #[arg(required_unless_present = "list")]
    #[arg(
        help = "The server: redis://[[user]:password@]host[:port][/database], rediss:// for TLS, \
                  or unix://path"
    )]
    url: Option<String>,
    #[cfg(feature = "tls")]
    #[command(flatten, next_help_heading = "TLS")]
    tls: TlsOptions,
    /// A server that is correct by definition: every command is sent to both, and replies compared
    #[arg(long, value_name = "URL")]
    reference: Option<String>,
    /// Run only cases with this text in family, client or name (may be repeated)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Run only the most important properties and cases, for 10 seconds at most
    #[arg(long, conflicts_with_all = ["cases", "fuzz"])]
    quick: bool,
    /// List the cases and run nothing
    #[arg(long)]
    list: bool,
    /// The format of the report
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// Show each failed case, not only the ten most common causes, and name all that is not reached
    #[arg(long)]
    all: bool,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not fail because of commands that the server does not have
    #[arg(long)]
    allow_missing: bool,
    /// Run also cases that flush scripts and functions, which all databases share
    #[arg(long)]
    allow_flush: bool,
    /// The number of cases that run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    jobs: usize,
    /// The time that a reply may take before the case fails, such as 500ms or 1m
    #[arg(long, alias = "patience", value_name = "SPAN", default_value_t = Span(REPLY_TIMEOUT))]
    reply_timeout: Span,
    /// The time within which the run ends; what is not reached by then is reported: 90s, 5m
    /// (default: 5m; 10s with --quick)
    #[arg(long, value_name = "SPAN")]
    time_limit: Option<Span>,
    /// Run the cases of these files instead of the built-in ones
    #[arg(long, value_name = "FILE")]
    cases: Vec<PathBuf>,
    /// Print the cases of --cases with the replies of the server instead of the expected ones
    #[arg(long, requires = "cases")]
    record: bool,
    /// The seconds for which each property under contention is tested
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The number of clients that contend in a property
    #[arg(long, value_name = "N")]
    connections: Option<usize>,
    /// The seed of random choices in properties and of --fuzz; random if not given
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Instead of the suite, send this many random commands to both servers, compare the replies,
    /// and reduce each difference to a short case
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

/// Runs the subcommand with the arguments after `compat`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let explain = |error: Error| explained(&error);
    shared::run(NAME, arguments, |arguments: &Arguments| perform(arguments).map_err(explain))
}

fn perform(arguments: &Arguments) -> Result<u8, Error> {
    let options = options(arguments)?;
    if arguments.record {
        return record(&options);
    }
    if let Some(count) = arguments.fuzz {
        return fuzz(options, count);
    }
    let suite = Suite::new(&options)?;
    if arguments.list {
        print(&list::write(&suite, arguments.format == Form::Json));
        return Ok(0);
    }
    handle_signals(&options.interrupt, NAME);
    let mut meter = SuiteMeter::new();
    let mut report = suite.run(&mut meter)?;
    report.all = arguments.all;
    meter.clear();
    write_report(arguments, &report)?;
    Ok(if report.is_green() { 0 } else { FOUND })
}

/// The error on one line, with what to do about it.
fn explained(error: &Error) -> String {
    let text = error.to_string();
    if matches!(error, Error::Usage(_)) {
        return text;
    }
    advised(&text, &[])
}

/// Writes the report to the file, or to standard output.
fn write_report(arguments: &Arguments, report: &Report) -> Result<(), Error> {
    let text = match arguments.format {
        Form::Text if arguments.output.is_none() && wants_colours() => report.coloured_text(),
        Form::Text => report.write(Format::Text),
        Form::Markdown => report.write(Format::Markdown),
        Form::Json => report.write(Format::Json),
        Form::Junit => report.write(Format::Junit),
    };
    let Some(path) = &arguments.output else {
        print(&text);
        return Ok(());
    };
    let written = fs::write(path, text);
    written.map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
    print(&format!("{} See {}.\n", report.summary(), path.display()));
    Ok(())
}

fn fuzz(options: Options, count: usize) -> Result<u8, Error> {
    let Some(reference) = options.reference else {
        return Err(Error::Usage("--fuzz needs a --reference".to_owned()));
    };
    handle_signals(&options.interrupt, NAME);
    let (target, seed, interrupt) = (options.target, options.seed, options.interrupt);
    let manner = fuzz::Manner::Grammar;
    let options = fuzz::Options { target, reference, count, seed, manner, interrupt };
    let report = fuzz::fuzz(&options, &mut FuzzMeter::new())?;
    print(&report.text());
    Ok(if report.is_green() { 0 } else { FOUND })
}

fn record(options: &Options) -> Result<u8, Error> {
    let lost = |error| Error::Server(options.target.clone(), error);
    let prefix = key_prefix_of_run();
    let target = Target::explore(&options.target, &prefix, false, options.reply_timeout.into())
        .map_err(lost)?;
    for case in options.cases.iter().flatten() {
        let text = record::record(&target, case).map_err(lost)?;
        print(&format!("{text}\n"));
    }
    Ok(0)
}

fn options(arguments: &Arguments) -> Result<Options, Error> {
    let mut options = Options::new(arguments.url.as_deref().unwrap_or(UNUSED_URL))?;
    let address = |text: &String| Address::parse(text).map_err(Error::Usage);
    options.reference = arguments.reference.as_ref().map(address).transpose()?;
    #[cfg(feature = "tls")]
    {
        let addresses = [&mut options.target].into_iter().chain(&mut options.reference);
        shared::set_tls(addresses, &arguments.tls).map_err(Error::Usage)?;
    }
    complete_password(&mut options.target);
    options.only.clone_from(&arguments.only);
    options.allow_flush = arguments.allow_flush;
    if arguments.quick {
        options.set_quick();
    }
    options.seconds = arguments.seconds.unwrap_or(options.seconds);
    options.connections = arguments.connections.unwrap_or(options.connections);
    options.seed = arguments.seed.unwrap_or(options.seed);
    options.allow_missing = arguments.allow_missing;
    options.jobs = arguments.jobs;
    options.reply_timeout = arguments.reply_timeout.0;
    options.time_limit = arguments.time_limit.map_or(options.time_limit, |limit| limit.0);
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
