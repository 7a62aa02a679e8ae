//! `lockwheel judge`: judges a history of requests to locks that another program has written.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lockwheel_prove::history_file;

use crate::compat_command::shared::run;
use crate::limits::HISTORY_BYTES_MAX;
use crate::prove_command::output::{self, Form};

/// The name of the command.
const NAME: &str = "lockwheel judge";

/// The name of standard input.
const STDIN: &str = "-";

const EXAMPLES: &str = "\
Examples:
  lockwheel judge history.json
  lockwheel judge history.json --format html --output report.html
  python3 my_test.py | lockwheel judge -

docs/prove.md describes the format, and has programs that write it.

Exit status: 0 nothing was found, 1 a lock was granted twice, lost early or used by others, 2 the
history cannot be read.";

/// Says whether a lock was granted twice or lost in a history of requests
#[derive(Parser)]
#[command(name = NAME, bin_name = NAME, after_help = EXAMPLES)]
struct Arguments {
    /// The file with the history, as JSON or as text; - for standard input
    history: String,
    /// The format of the report
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand with the arguments after `judge`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    run(NAME, arguments, perform)
}

fn perform(arguments: &Arguments) -> Result<u8, String> {
    let name = match &*arguments.history {
        STDIN => "standard input",
        path => path,
    };
    let named = |problem: &dyn std::fmt::Display| format!("{name}: {problem}");
    let text = read(&arguments.history).map_err(|error| named(&error))?;
    let report = history_file::judge(name, &text).map_err(|problem| named(&problem))?;
    output::write(&report, arguments.format, arguments.output.as_deref())
}

fn read(path: &str) -> io::Result<String> {
    let source: Box<dyn Read> = match path {
        STDIN => Box::new(io::stdin()),
        path => Box::new(File::open(path)?),
    };
    let mut text = String::new();
    // One byte more than is allowed shows that there is more.
    let length = source.take(HISTORY_BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > HISTORY_BYTES_MAX {
        let mib = HISTORY_BYTES_MAX >> 20;
        return Err(io::Error::other(format!("it has more than {mib} MiB")));
    }
    Ok(text)
}
