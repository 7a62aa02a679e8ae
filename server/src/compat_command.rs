//! `leasehold compat`: the command line of the compatibility suite, and its progress.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use leasehold::compat::case::Case;
use leasehold::compat::target::Target;
use leasehold::compat::{Address, Error, Options, Suite, record};

/// Nothing could be tried.
const UNUSABLE: u8 = 2;

/// Tries whether a server that speaks Redis's protocol is safe for locks
#[derive(Parser)]
#[command(name = "leasehold compat", bin_name = "leasehold compat")]
struct Arguments {
    /// The server: redis://[[user]:password@]host[:port][/database] or unix://path
    url: String,
    /// A server that is right by definition: everything is sent to both and compared
    #[arg(long, value_name = "URL")]
    reference: Option<String>,
    /// Only what has this in its family, client or name (may be repeated)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
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
    /// What decides what clients do in properties; another each time if none is given
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Try what flushes scripts and functions as well, which belong to all databases
    #[arg(long)]
    allow_flush: bool,
}

/// Runs it. `arguments` are those behind `compat`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let name = "leasehold compat".to_owned();
    let parsed = Arguments::try_parse_from([name].into_iter().chain(arguments.iter().cloned()));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => {
            // Its output may be closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(UNUSABLE));
        }
    };
    if arguments.record {
        return match options(&arguments).and_then(|options| record(&options)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error),
        };
    }
    let report = options(&arguments).and_then(|options| Suite::new(&options)?.run(&mut ()));
    match report {
        Ok(report) => {
            let _ = std::io::stdout().write_all(report.text().as_bytes());
            if report.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{error}");
    ExitCode::from(UNUSABLE)
}

fn record(options: &Options) -> Result<(), Error> {
    let lost = |error| Error::Server(options.target.clone(), error);
    let target = Target::explore(&options.target, "", false).map_err(lost)?;
    for case in options.cases.iter().flatten() {
        let text = record::record(&target, case).map_err(lost)?;
        let _ = writeln!(std::io::stdout(), "{text}");
    }
    Ok(())
}

fn options(arguments: &Arguments) -> Result<Options, Error> {
    let mut options = Options::new(&arguments.url)?;
    let address = |text: &String| Address::parse(text).map_err(Error::Usage);
    options.reference = arguments.reference.as_ref().map(address).transpose()?;
    options.only.clone_from(&arguments.only);
    options.allow_flush = arguments.allow_flush;
    options.seconds = arguments.seconds.unwrap_or(options.seconds);
    options.connections = arguments.connections.unwrap_or(options.connections);
    options.seed = arguments.seed.unwrap_or(options.seed);
    let mut cases = Vec::new();
    for path in &arguments.cases {
        let file = path.display().to_string();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Error::Usage(format!("{file}: {error}")))?;
        let read = Case::parse_all(&file, &text);
        cases.extend(read.map_err(|mistake| Error::Usage(mistake.to_string()))?);
    }
    options.cases = Some(cases).filter(|cases| !cases.is_empty());
    Ok(options)
}
