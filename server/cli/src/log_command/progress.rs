//! The progress of a long operation, shown on standard error if that is a terminal.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};
use lockwheel_log::Disk;
use lockwheel_log::names::Name;

/// A progress bar, which is removed when this is dropped; `None` without a terminal.
pub(super) struct LogMeter(Option<ProgressBar>);

impl LogMeter {
    /// A meter of `steps` steps. `label` is shown in front of the bar.
    fn new(steps: u64, label: &'static str) -> LogMeter {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new(steps));
        let style = ProgressStyle::with_template("{msg} {bar:40} {percent}% {eta}");
        if let (Some(bar), Ok(style)) = (&bar, style) {
            bar.set_style(style.clone());
            bar.set_message(label);
        }
        LogMeter(bar)
    }

    /// A meter whose steps are the bytes of a log.
    pub(super) fn of_log(disk: &dyn Disk, label: &'static str) -> LogMeter {
        let names = disk.names().unwrap_or_default();
        let files = names.iter().filter(|name| Name::parse(name).is_some());
        let bytes = files.filter_map(|name| disk.open(name).and_then(|file| file.length()).ok());
        LogMeter::new(bytes.sum(), label)
    }

    /// A meter whose steps are keys that are written.
    pub(super) fn of_keys(keys: u64) -> LogMeter {
        LogMeter::new(keys, "writing")
    }

    /// Advances the bar by `steps`.
    pub(super) fn advance(&self, steps: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(steps);
        }
    }
}

impl Drop for LogMeter {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
