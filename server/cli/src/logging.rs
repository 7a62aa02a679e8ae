//! The log: lines in the format of Redis, since launchers read them, or in one for programs. Log
//! output never blocks the server, even if the reader closes the pipe or stops reading.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use crate::limits;
use crate::process_settings::ProcessSettings;
use lockwheel_engine::settings::LogFormat;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Permission bits of a new file of the log, unless the umask permits less.
const LOGFILE_MODE: u32 = 0o644;

/// Starts the log, to its file or to standard output. A separate thread writes the lines until the
/// guard is dropped; lines are dropped when it cannot keep up.
///
/// # Errors
/// If the file cannot be opened; the text names it.
pub(crate) fn start(process: &ProcessSettings) -> Result<WorkerGuard, String> {
    let writer: Box<dyn io::Write + Send> = match &process.logfile {
        Some(path) => {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true).mode(LOGFILE_MODE).open(path);
            Box::new(file.map_err(|error| format!("Can't open the log file '{path}': {error}"))?)
        }
        None => Box::new(io::stdout()),
    };
    let level = process.loglevel;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(limits::LOG_LINES_MAX)
        .lossy(true)
        .finish(writer);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .log_internal_errors(false)
        .event_format(Line(process.log_format))
        .with_writer(writer)
        .finish()
        .with(Targets::new().with_default(level).with_target("openraft", level_of_raft(level)))
        .init();
    Ok(guard)
}

/// Openraft reports each step, and each attempt to reach a node; the server itself reports what
/// matters to an operator.
fn level_of_raft(level: LevelFilter) -> LevelFilter {
    match level {
        LevelFilter::TRACE => LevelFilter::TRACE,
        LevelFilter::DEBUG => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    }
}

/// A line of the log in one of its formats.
struct Line(LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let pid = std::process::id();
        let (mark, level) = mark_and_name(*event.metadata().level());
        if self.0 == LogFormat::Legacy {
            write!(writer, "{pid}:M ")?;
            SystemTime.format_time(&mut writer)?;
            write!(writer, " {mark} ")?;
            context.format_fields(Writer::new(&mut OneLine(writer.by_ref())), event)?;
            return writeln!(writer);
        }
        let (mut time, mut message) = (String::new(), String::new());
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        context.format_fields(Writer::new(&mut message), event)?;
        let message = serde_json::Value::from(message);
        match self.0 {
            LogFormat::Json => writeln!(
                writer,
                r#"{{"time":"{time}","level":"{level}","pid":{pid},"message":{message}}}"#
            ),
            _ => {
                writeln!(writer, r#"pid={pid} timestamp="{time}" level={level} message={message}"#)
            }
        }
    }
}

/// The mark of a level in a line of Redis, and its name in `loglevel`.
fn mark_and_name(level: Level) -> (char, &'static str) {
    match level {
        Level::ERROR | Level::WARN => ('#', "warning"),
        Level::INFO => ('*', "notice"),
        Level::DEBUG => ('-', "verbose"),
        Level::TRACE => ('.', "debug"),
    }
}

/// Escapes control characters, so that text of clients, as that of `redis.log`, begins no line.
struct OneLine<'a>(Writer<'a>);

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match character.is_control() {
            true => write!(self.0, "{}", character.escape_default()),
            false => self.0.write_char(character),
        })
    }
}
