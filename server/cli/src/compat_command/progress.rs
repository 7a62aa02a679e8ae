//! The progress of a run: a bar on a terminal, otherwise a line every ten seconds.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use lockwheel_compat::{Outcome, Progress, Verdict, fuzz, time};

/// The interval of lines without a terminal.
const LINE_INTERVAL_US: i64 = 10_000_000;

/// Shows the progress of the suite on standard error.
pub(super) struct SuiteMeter {
    bar: Option<ProgressBar>,
    count: usize,
    done: usize,
    failed: usize,
    printed_us: i64,
}

impl SuiteMeter {
    /// A meter that shows nothing yet.
    pub(super) fn new() -> SuiteMeter {
        SuiteMeter { bar: None, count: 0, done: 0, failed: 0, printed_us: time::now_us() }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn text(&self) -> String {
        match self.failed {
            0 => String::new(),
            failed => format!("{failed} failed"),
        }
    }
}

impl Progress for SuiteMeter {
    fn begins(&mut self, count: usize) {
        self.count = count;
        if io::stderr().is_terminal() {
            let bar = ProgressBar::new(u64::try_from(count).unwrap_or(u64::MAX));
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
            if let Ok(style) = style {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
    }

    fn ended(&mut self, outcome: &Outcome) {
        self.done += 1;
        let good =
            matches!(outcome.verdict, Verdict::Passed | Verdict::Skipped(_) | Verdict::NotReached);
        self.failed += usize::from(!good);
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(self.text());
        } else if time::now_us() - self.printed_us > LINE_INTERVAL_US {
            self.printed_us = time::now_us();
            let (done, count, text) = (self.done, self.count, self.text());
            let _ = writeln!(io::stderr(), "{done} of {count} {text}");
        }
    }
}

/// Shows how many random commands have been sent, on standard error.
pub(super) struct FuzzMeter {
    bar: Option<ProgressBar>,
    printed_us: i64,
}

impl FuzzMeter {
    /// A meter that shows nothing yet.
    pub(super) fn new() -> FuzzMeter {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new(0));
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {msg}");
        if let (Some(bar), Ok(style)) = (&bar, style) {
            bar.set_style(style);
        }
        FuzzMeter { bar, printed_us: time::now_us() }
    }
}

impl fuzz::Progress for FuzzMeter {
    fn fuzzed(&mut self, done: usize, of: usize, found: usize) {
        let text = if found == 1 { "difference" } else { "differences" };
        if let Some(bar) = &self.bar {
            bar.set_length(u64::try_from(of).unwrap_or(u64::MAX));
            bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
            bar.set_message(format!("{found} {text}"));
            if done >= of {
                bar.finish_and_clear();
            }
        } else if time::now_us() - self.printed_us >= LINE_INTERVAL_US {
            self.printed_us = time::now_us();
            let _ = writeln!(io::stderr(), "{done} of {of} commands, {found} {text}");
        }
    }
}
