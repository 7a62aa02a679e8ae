//! The command line.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lockwheel_comparison::Outcome;

use crate::measure::effort::Effort;

/// The name of the subcommand that measures a start within a process.
pub(crate) const START_IN_PROCESS: &str = "start-in-process";

/// The name of the subcommand that runs the bare server.
pub(crate) const BARE_SERVER: &str = "bare-server";

/// The name of the subcommand that runs a node of the floor.
pub(crate) const FLOOR: &str = "floor";

/// The number of rounds, and the length of a measurement.
const ROUNDS: u32 = 3;
const SECONDS: f64 = 0.5;
/// The same for `--quick`, which only checks that everything works.
const QUICK_ROUNDS: u32 = 1;
const QUICK_SECONDS: f64 = 0.1;
/// The warm-up, as a part of the measurement's length: long enough for all buffers to have grown.
const WARM_UP_SHARE: f64 = 0.3;

/// Starts Lockwheel and every other server it finds and compares their costs.
#[derive(Parser)]
#[command(name = "compare")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) action: Option<CompareAction>,
    /// The number of rounds [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The length of a measurement, if it is variable [default: 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Run everything once, briefly and with small sizes, to check that it works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only workloads with this text in their names, or of this family (see --list); may be
    /// repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Measure the workloads with a log that is flushed before each reply, on the disk of TMPDIR
    #[arg(long)]
    pub(crate) durable: bool,
    /// Measure the cycles without contention over TLS
    #[arg(long, conflicts_with = "durable")]
    pub(crate) tls: bool,
    /// Measure three nodes that replicate, with logs on the disk of TMPDIR, beside one
    #[arg(long, conflicts_with_all = ["durable", "tls"])]
    pub(crate) replication: bool,
    /// By how much flushes take longer, for measurements that show slower disks
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0,0.25,2")]
    #[arg(value_parser = delay, requires = "durable")]
    flush_delay_ms: Vec<Duration>,
    /// List the workloads by family
    #[arg(long)]
    pub(crate) list: bool,
    /// Measure only servers with one of these texts in their names [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// An additional server and its command: "KeyDB=keydb-server --server-threads 1". The ratios of
    /// Lockwheel are to the first that is another build of Lockwheel: "old=/path/to/lockwheel"
    #[arg(long, value_name = "NAME=COMMAND", value_parser = peer)]
    pub(crate) peer: Vec<ServerArgument>,
    /// The format of the outcome
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub(crate) format: Format,
    /// The output file instead of the standard output. Required for a page, as the plots are
    /// written to the folder `performance` beside it
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) output: Option<PathBuf>,
    /// The file for all figures, written after each workload, for `render` and `--resume`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Measure only workloads that the file of --save does not contain
    #[arg(long, requires = "save")]
    pub(crate) resume: bool,
    /// The processor of the servers
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub(crate) server_core: usize,
    /// The processor of the clients
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub(crate) client_core: usize,
}

/// A server of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerArgument {
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
}

/// An action that the program runs instead of a comparison.
#[derive(Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum CompareAction {
    /// Writes the outcome of earlier runs; later files replace workloads of earlier ones
    Render {
        /// Files written by --save or --format json
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Reads the costs of a timer from criterion's folder, target/criterion
    Wheel {
        /// The folder
        folder: PathBuf,
    },
    /// Starts a server in this process and prints how long that took, in nanoseconds
    #[command(hide = true)]
    StartInProcess,
    /// Runs a server that only sends configured replies
    #[command(hide = true)]
    BareServer(ServerArguments),
    /// Runs a node that does only what a durable or a replicated change costs
    #[command(hide = true)]
    Floor(FloorArguments),
}

/// The arguments with which every server is started.
#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct ServerArguments {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    bind: IpAddr,
    #[arg(long)]
    save: String,
    #[arg(long)]
    appendonly: String,
}

/// The arguments of a node of the floor.
#[derive(Debug, PartialEq, Eq, Args)]
pub(crate) struct FloorArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[arg(long)]
    appendfsync: String,
    /// The directory of the log.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// A node that has each change before the reply, unless another one does.
    #[arg(long)]
    pub(crate) follower: Vec<SocketAddr>,
    /// Whether it is such a node.
    #[arg(long, conflicts_with = "follower")]
    pub(crate) follows: bool,
}

impl ServerArguments {
    /// The address to listen on.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.bind, self.port))
    }
}

/// The formats of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For a terminal
    Table,
    /// For a document
    Markdown,
    /// All figures
    Json,
    /// The tables, for benches/results
    Tables,
    /// docs/performance.md: text, tables and plots
    Page,
    /// docs/durability.md: text and tables of a run with --durable
    Durability,
}

impl Options {
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { QUICK_ROUNDS } else { ROUNDS })
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { QUICK_SECONDS } else { SECONDS })
    }

    /// The effort of a single measurement.
    pub(crate) fn effort(&self) -> Effort {
        let span = Duration::from_secs_f64(self.seconds());
        let warm_up = span.mul_f64(WARM_UP_SHARE);
        Effort { span, warm_up, quick: self.quick }
    }

    /// By how much flushes take longer.
    pub(crate) fn flush_delays(&self) -> Vec<Duration> {
        self.flush_delay_ms.clone()
    }

    /// Whether a workload of a family is selected.
    pub(crate) fn wants(&self, family: &str, title: &str) -> bool {
        let is_family = self.only.iter().any(|text| text.eq_ignore_ascii_case(family));
        self.only.is_empty() || is_family || contains_one_of(title, &self.only)
    }

    /// Opens the output of the outcome.
    pub(crate) fn open_output(&self) -> Outcome<Box<dyn Write>> {
        let Some(path) = &self.output else { return Ok(Box::new(io::stdout())) };
        match File::create(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }
}

/// Whether the name contains one of the texts, ignoring case.
pub(crate) fn contains_one_of(name: &str, texts: &[String]) -> bool {
    let name = name.to_lowercase();
    texts.iter().any(|text| name.contains(&text.to_lowercase()))
}

fn peer(text: &str) -> Result<ServerArgument, String> {
    let (name, command) = text.split_once('=').ok_or("no \"=\" after the name")?;
    let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    match name.trim() {
        "" => Err("no name before \"=\"".to_owned()),
        _ if words.is_empty() => Err("no command after \"=\"".to_owned()),
        name => Ok(ServerArgument { name: name.to_owned(), words }),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let good = (0.001..=3600.0).contains(&seconds);
    if good { Ok(seconds) } else { Err("between 0.001 and 3600".to_owned()) }
}

fn delay(text: &str) -> Result<Duration, String> {
    let delay_ms: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let good = (0.0..=1000.0).contains(&delay_ms);
    if good { Ok(Duration::from_secs_f64(delay_ms / 1e3)) } else { Err("0 to 1000".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Options, ServerArgument};

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments = [&["compare"], arguments].concat();
        Options::try_parse_from(arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn peer_is_a_name_and_a_command() {
        let options = parse(&["--peer", "old=/bin/a", "--peer", "in Lua = b --set x=1"]);
        let read = |name: &str, words: &[&str]| {
            let words = words.iter().map(|&word| word.to_owned()).collect();
            ServerArgument { name: name.to_owned(), words }
        };
        let expected = [read("old", &["/bin/a"]), read("in Lua", &["b", "--set", "x=1"])];
        assert_eq!(options.map(|options| options.peer), Ok(expected.to_vec()));
    }

    #[test]
    fn incomplete_peer_is_refused() {
        for (text, reason) in [
            ("nameless", "no \"=\" after the name"),
            ("=server", "no name before"),
            ("old=", "no command after"),
            ("old= ", "no command after"),
        ] {
            let error = parse(&["--peer", text]).err().unwrap_or_default();
            assert!(error.contains("--peer <NAME=COMMAND>") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn kinds_of_runs_exclude_each_other() {
        for kinds in [["--durable", "--tls"], ["--durable", "--replication"]] {
            assert!(parse(&kinds).is_err(), "{kinds:?}");
        }
    }
}
