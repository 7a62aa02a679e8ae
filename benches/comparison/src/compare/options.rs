//! The command line. It must not know what the workloads are.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::Outcome;
use crate::workload::Effort;

/// How the subcommand is called that says how long a start within a process takes.
pub(crate) const START_IN_PROCESS: &str = "start-in-process";

/// How the subcommand is called that is a server which does nothing but answer.
pub(crate) const BARE_SERVER: &str = "bare-server";

const ROUNDS: u32 = 3;
const SECONDS: f64 = 0.5;
/// One round, and no longer than shows that everything works.
const QUICK_ROUNDS: u32 = 1;
const QUICK_SECONDS: f64 = 0.1;
/// Before a measurement, as a part of its length: long enough for both sides to have grown.
const WARM_UP_SHARE: f64 = 0.3;

/// Starts Lockwheel and every other server it finds and compares what they cost.
#[derive(Parser)]
#[command(name = "compare")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) act: Option<Act>,
    /// How often everything is measured [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How long one measurement takes, where that can be chosen [default: 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Everything once, briefly and small: whether it works, not what it costs
    #[arg(long)]
    pub(crate) quick: bool,
    /// Workloads with this in their name; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Say which workloads there are
    #[arg(long)]
    pub(crate) list: bool,
    /// Servers with one of these in their name, or else all that are found
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// One server more, and how to run it: "KeyDB=keydb-server --server-threads 1"
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) peer: Vec<String>,
    /// In which form the outcome is told
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub(crate) format: Format,
    /// Where it is written instead of the standard output. A page needs it: its plots go into a
    /// folder beside it, `performance`
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) output: Option<PathBuf>,
    /// Where every figure is kept, after each workload, for `render` and `--resume`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Measure only what the file of --save does not hold yet
    #[arg(long, requires = "save")]
    pub(crate) resume: bool,
    /// The processor the servers run on
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub(crate) server_core: usize,
    /// The processor the clients run on
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub(crate) client_core: usize,
}

/// What is done instead of a comparison.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Act {
    /// Tells once more what was measured before. Of what several runs have measured the last counts
    Render {
        /// What --save has kept, or --format json has written
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Reads the costs of a timer from the folder into which criterion writes: target/criterion
    Wheel {
        /// The folder
        folder: PathBuf,
    },
    /// Starts a server in this process and says how long that took, in nanoseconds
    #[command(hide = true)]
    StartInProcess,
    /// Serves replies that it is told, and does nothing else
    #[command(hide = true)]
    BareServer(Place),
}

/// What every server of the comparison is started with.
#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct Place {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    bind: IpAddr,
    #[arg(long)]
    save: String,
    #[arg(long)]
    appendonly: String,
}

impl Place {
    /// Where it is to listen.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.bind, self.port))
    }
}

/// The forms of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a terminal
    Table,
    /// For a document
    Markdown,
    /// With every single figure
    Json,
    /// docs/performance.md: text, tables and plots
    Page,
}

impl Options {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { QUICK_ROUNDS } else { ROUNDS })
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { SECONDS })
    }

    /// How much is done for a single measurement.
    pub(crate) fn effort(&self) -> Effort {
        let span = Duration::from_secs_f64(self.seconds());
        let warm_up = span.mul_f64(WARM_UP_SHARE);
        Effort { span, warm_up, quick: self.quick }
    }

    /// Whether a workload was asked for.
    pub(crate) fn wants(&self, title: &str) -> bool {
        self.only.is_empty() || holds_one_of(title, &self.only)
    }

    /// Where the outcome goes.
    pub(crate) fn open_output(&self) -> Outcome<Box<dyn Write>> {
        let Some(path) = &self.output else { return Ok(Box::new(io::stdout())) };
        match File::create(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }
}

/// Whether one of the texts stands in the name, whatever its case.
pub(crate) fn holds_one_of(name: &str, texts: &[String]) -> bool {
    let name = name.to_lowercase();
    texts.iter().any(|text| name.contains(&text.to_lowercase()))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let good = (0.001..=3600.0).contains(&seconds);
    if good { Ok(seconds) } else { Err("between 0.001 and 3600".to_owned()) }
}
