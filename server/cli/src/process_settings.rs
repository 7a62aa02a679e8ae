//! The settings that only the program uses: log, working directory, supervisor.

use lockwheel::Settings;
use lockwheel_engine::settings::{LogLevel, Supervised};
use tracing::level_filters::LevelFilter;

use crate::admin::AdminSettings;

/// The settings of the process. The engine keeps the values of these directives for `CONFIG`.
pub(crate) struct ProcessSettings {
    /// Run in the background.
    pub(crate) daemonize: bool,
    /// The supervisor that waits for a notification that the server is ready.
    pub(crate) supervised: Supervised,
    /// The working directory.
    pub(crate) dir: String,
    /// The level of the log.
    pub(crate) loglevel: LevelFilter,
    /// Path of the log; without one the log goes to standard output.
    pub(crate) logfile: Option<String>,
    /// Stop when standard input is closed, as when the parent process ends.
    pub(crate) end_with_stdin: bool,
    /// Path of the unix socket, if any.
    pub(crate) unixsocket: Option<String>,
    /// Whether the server listens on a TCP port for connections without TLS.
    pub(crate) listens: bool,
    /// The listener for monitoring.
    pub(crate) admin: AdminSettings,
    /// Whether the server listens on a TLS port.
    pub(crate) listens_for_tls: bool,
    /// Whether users are in the file of `aclfile`.
    pub(crate) has_acl_file: bool,
}

impl ProcessSettings {
    /// Whether the server listens on any port.
    pub(crate) fn has_port(&self) -> bool {
        self.listens || self.listens_for_tls
    }

    /// Reads the directives. Their values were checked when they were set.
    pub(crate) fn of(settings: &Settings) -> ProcessSettings {
        let path = |name| Some(settings.text(name)).filter(|path| !path.is_empty());
        let words = |name| settings.text(name).split_whitespace().map(str::to_owned).collect();
        let is_on = |name| settings.text(name) == "yes";
        let unixsocket = path("unixsocket");
        let listens_for_tls = settings.text("tls-port") != "0";
        ProcessSettings {
            daemonize: is_on("daemonize"),
            supervised: Supervised::from_name(&settings.text("supervised")).unwrap_or_default(),
            dir: settings.text("dir"),
            loglevel: level(LogLevel::from_name(&settings.text("loglevel")).unwrap_or_default()),
            logfile: path("logfile"),
            end_with_stdin: is_on("end-with-stdin"),
            listens: settings.port != 0 || unixsocket.is_none() && !listens_for_tls,
            listens_for_tls,
            has_acl_file: !settings.text("aclfile").is_empty(),
            unixsocket,
            admin: AdminSettings {
                port: settings.text("admin-port").parse().unwrap_or_default(),
                bind: words("admin-bind"),
                hosts: words("admin-hosts"),
                uses_tls: is_on("admin-tls"),
            },
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
        let bind = vec!["127.0.0.1".to_owned(), "-::1".to_owned()];
        assert_eq!(defaults.admin, AdminSettings { bind, ..AdminSettings::default() });
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
