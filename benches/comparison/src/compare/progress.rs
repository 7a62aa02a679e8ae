//! The progress of the run on standard error: a bar on a terminal, periodic lines otherwise.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// How often the bar's clock is redrawn during a measurement.
const TICK: Duration = Duration::from_millis(500);

/// Counts measurements and shows their progress.
pub(crate) struct RunMeter {
    bar: Option<ProgressBar>,
    began: Instant,
    last_line: Instant,
    done: u64,
    count: u64,
    at: String,
}

impl RunMeter {
    /// Begins a run of this number of measurements.
    pub(crate) fn begin(count: u64) -> RunMeter {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new(count));
        let template = "{elapsed_precise} {bar:30} {pos}/{len}, {eta_precise} left: {msg}";
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template(template)) {
            bar.set_style(style);
            bar.enable_steady_tick(TICK);
        }
        let now = Instant::now();
        RunMeter { bar, began: now, last_line: now, done: 0, count, at: String::new() }
    }

    /// Shows the next workload and server.
    pub(crate) fn at(&mut self, title: &str, server: &str) {
        self.at = format!("{title}: {server}");
        if let Some(bar) = &self.bar {
            bar.set_message(self.at.clone());
        }
    }

    /// Counts a measurement that has succeeded or failed.
    pub(crate) fn advance(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        } else if self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let (done, count, at) = (self.done, self.count, &self.at);
            print(&format!("{done} of {count}, {} s: {at}", self.began.elapsed().as_secs()));
        }
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line to standard error, apart from the outcome.
pub(crate) fn print(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
