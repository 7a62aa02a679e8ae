//! The settings of the log, read once at the start.

use std::path::{Path, PathBuf};

use lockwheel_engine::settings::Settings;

use crate::log::FlushPolicy;

/// Whether, where and how the units of the engine are logged. The engine keeps the values of these
/// directives for `CONFIG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// The directory of the log; `None` if there is none.
    pub(crate) directory: Option<PathBuf>,
    /// When it is flushed.
    pub(crate) policy: FlushPolicy,
}

impl LogSettings {
    /// Reads the directives. Their values were checked when they were set.
    pub(crate) fn of(settings: &Settings) -> LogSettings {
        let directory = || Path::new(&settings.text("dir")).join(settings.text("appenddirname"));
        LogSettings {
            directory: (settings.text("appendonly") == "yes").then(directory),
            policy: match &*settings.text("appendfsync") {
                "always" => FlushPolicy::Always,
                "everysec" => FlushPolicy::EverySecond,
                _ => FlushPolicy::Never,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read() {
        let mut settings = Settings::default();
        let defaults = LogSettings::of(&settings);
        assert_eq!((defaults.directory, defaults.policy), (None, FlushPolicy::Always));
        for (name, value) in [
            ("appendonly", "yes"),
            ("dir", "/data"),
            ("appenddirname", "log"),
            ("appendfsync", "everysec"),
        ] {
            settings.apply(name, value).expect("a value of its kind");
        }
        let read = LogSettings::of(&settings);
        assert_eq!(read.directory.as_deref(), Some(Path::new("/data/log")));
        assert_eq!(read.policy, FlushPolicy::EverySecond);
    }
}
