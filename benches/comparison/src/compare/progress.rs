//! How far the run has come, on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is said where there is no terminal.
const PAUSE: Duration = Duration::from_secs(10);
/// How often the bar's clock is drawn anew while a measurement takes its time.
const TICK: Duration = Duration::from_millis(500);

/// Shows it.
pub(crate) struct Meter {
    bar: Option<ProgressBar>,
    began: Instant,
    said: Instant,
    done: u64,
    count: u64,
    at: String,
}

impl Meter {
    /// So many measurements are to be made.
    pub(crate) fn begin(count: u64) -> Meter {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new(count));
        let template = "{elapsed_precise} {bar:30} {pos}/{len}, {eta_precise} left: {msg}";
        if let (Some(bar), Ok(style)) = (&bar, ProgressStyle::with_template(template)) {
            bar.set_style(style);
            bar.enable_steady_tick(TICK);
        }
        let now = Instant::now();
        Meter { bar, began: now, said: now, done: 0, count, at: String::new() }
    }

    /// What is measured next, and on whom.
    pub(crate) fn at(&mut self, title: &str, peer: &str) {
        self.at = format!("{title}: {peer}");
        if let Some(bar) = &self.bar {
            bar.set_message(self.at.clone());
        }
    }

    /// One more measurement is made, for good or ill.
    pub(crate) fn did_one(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        } else if self.said.elapsed() >= PAUSE {
            self.said = Instant::now();
            let (done, count, at) = (self.done, self.count, &self.at);
            say(&format!("{done} of {count}, {} s: {at}", self.began.elapsed().as_secs()));
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line for whoever runs this, apart from the outcome.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
