//! The settings that only the program uses: log, working directory, supervisor.

use lockwheel::Settings;
use lockwheel_engine::settings::{LogFormat, LogLevel, Supervised, directive};
use tracing::level_filters::LevelFilter;

use crate::admin::AdminSettings;

/// The settings of the process. The engine keeps the values of these directives for `CONFIG`.
pub(crate) struct ProcessSettings {
    /// Whether to run in the background.
    pub(crate) daemonize: bool,
    /// The supervisor that waits for a notification that the server is ready.
    pub(crate) supervised: Supervised,
    /// The working directory.
    pub(crate) dir: String,
    /// The level of the log.
    pub(crate) loglevel: LevelFilter,
    /// The format of the log.
    pub(crate) log_format: LogFormat,
    /// Path of the log; without one the log goes to standard output.
    pub(crate) logfile: Option<String>,
    /// Whether to stop when standard input is closed, as when the parent process ends.
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

    /// Reads the directives.
    pub(crate) fn of(settings: &Settings) -> ProcessSettings {
        let unixsocket = settings.get(directive::UNIXSOCKET);
        let listens_for_tls = settings.get(directive::TLS_PORT) != 0;
        ProcessSettings {
            daemonize: settings.get(directive::DAEMONIZE),
            supervised: settings.get(directive::SUPERVISED),
            dir: settings.get(directive::DIR),
            loglevel: level(settings.get(directive::LOGLEVEL)),
            log_format: settings.get(directive::LOG_FORMAT),
            logfile: settings.get(directive::LOGFILE),
            end_with_stdin: settings.get(directive::END_WITH_STDIN),
            listens: settings.port != 0 || unixsocket.is_none() && !listens_for_tls,
            listens_for_tls,
            has_acl_file: settings.get(directive::ACLFILE).is_some(),
            unixsocket,
            admin: AdminSettings {
                port: settings.get(directive::ADMIN_PORT),
                bind: settings.get(directive::ADMIN_BIND),
                hosts: settings.get(directive::ADMIN_HOSTS),
                uses_tls: settings.get(directive::ADMIN_TLS),
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
