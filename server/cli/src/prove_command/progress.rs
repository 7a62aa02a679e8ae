//! The progress of a run: a bar on a terminal, otherwise a line every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lockwheel_prove::Progress;
use lockwheel_prove::report::Totals;

/// The interval of lines without a terminal, in seconds.
const LINE_INTERVAL: f64 = 10.0;

/// Shows on standard error what a run has seen so far.
pub(super) struct Meter {
    bar: Option<ProgressBar>,
    /// The second of the run at which the next line is due.
    next_line: f64,
}

impl Meter {
    /// A meter of a run of this length. While it waits for input from the terminal it has no bar.
    pub(super) fn new(duration: Duration, waits_for_input: bool) -> Meter {
        let has_bar = io::stderr().is_terminal() && !waits_for_input;
        let bar = has_bar.then(|| ProgressBar::new(duration.as_secs()));
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} s  {msg}");
        if let (Some(bar), Ok(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Meter { bar, next_line: LINE_INTERVAL }
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Meter {
    fn update(&mut self, seconds: f64, totals: &Totals, faults: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(seconds as u64);
            bar.set_message(text(totals, faults));
        } else if seconds >= self.next_line {
            self.next_line = seconds + LINE_INTERVAL;
            let _ = writeln!(io::stderr(), "{seconds:.0} s: {}", text(totals, faults));
        }
    }
}

fn text(totals: &Totals, faults: usize) -> String {
    let Totals { granted, granted_twice, lost_early, .. } = totals;
    let locks = if *granted == 1 { "lock" } else { "locks" };
    let faults = if faults == 1 { "1 fault".to_owned() } else { format!("{faults} faults") };
    format!("{granted} {locks}, {granted_twice} granted twice, {lost_early} lost early, {faults}")
}

#[cfg(test)]
mod tests {
    use super::text;
    use lockwheel_prove::report::Totals;

    #[test]
    fn text_has_what_was_seen() {
        let totals =
            Totals { granted: 4120, granted_twice: 17, lost_early: 3, ..Totals::default() };
        assert_eq!(text(&totals, 2), "4120 locks, 17 granted twice, 3 lost early, 2 faults");
        let totals = Totals { granted: 1, ..Totals::default() };
        assert_eq!(text(&totals, 1), "1 lock, 0 granted twice, 0 lost early, 1 fault");
    }
}
