//! The settings that only the program uses: the log, the working directory, who supervises it.

use lockwheel::Settings;
use lockwheel_engine::settings::{LogLevel, Supervised};
use tracing::level_filters::LevelFilter;

/// How the process is to run. The engine keeps the values of these directives for `CONFIG`.
pub(crate) struct ProcessSettings {
    /// Continue in the background.
    pub(crate) daemonize: bool,
    /// Which supervisor waits for a message that the server is ready.
    pub(crate) supervised: Supervised,
    /// The directory that relative paths start from.
    pub(crate) dir: String,
    /// How much is logged.
    pub(crate) loglevel: LevelFilter,
    /// Path of the log; without one the log goes to standard output.
    pub(crate) logfile: Option<String>,
    /// End when standard input is closed, as it is when the process that started this one ends.
    pub(crate) end_with_stdin: bool,
    /// Path of the Unix socket, if there is to be one.
    pub(crate) unixsocket: Option<String>,
    /// Whether the server listens on a TCP port.
    pub(crate) listens: bool,
}

impl ProcessSettings {
    /// Reads the directives. The kinds of the directives have checked every value before.
    pub(crate) fn of(settings: &Settings) -> ProcessSettings {
        let path = |name| Some(settings.text(name)).filter(|path| !path.is_empty());
        let is_on = |name| settings.text(name) == "yes";
        let unixsocket = path("unixsocket");
        ProcessSettings {
            daemonize: is_on("daemonize"),
            supervised: Supervised::from_name(&settings.text("supervised")).unwrap_or_default(),
            dir: settings.text("dir"),
            loglevel: level(LogLevel::from_name(&settings.text("loglevel")).unwrap_or_default()),
            logfile: path("logfile"),
            end_with_stdin: is_on("end-with-stdin"),
            listens: settings.port != 0 || unixsocket.is_none(),
            unixsocket,
        }
    }
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read() {
        let mut settings = Settings::default();
        let defaults = ProcessSettings::of(&settings);
        assert!(!defaults.daemonize && !defaults.end_with_stdin && defaults.listens);
        assert_eq!((defaults.supervised, &*defaults.dir), (Supervised::No, "."));
        assert_eq!((defaults.loglevel, defaults.logfile), (LevelFilter::INFO, None));
        for (name, value) in [
            ("daemonize", "YES"),
            ("supervised", "Systemd"),
            ("loglevel", "verbose"),
            ("logfile", "l"),
            ("unixsocket", "s"),
            ("port", "0"),
        ] {
            settings.apply(name, value).expect("a value of its kind");
        }
        let read = ProcessSettings::of(&settings);
        assert!(read.daemonize && !read.listens);
        assert_eq!((read.supervised, read.loglevel), (Supervised::Systemd, LevelFilter::DEBUG));
        assert_eq!((read.logfile.as_deref(), read.unixsocket.as_deref()), (Some("l"), Some("s")));
    }
}
