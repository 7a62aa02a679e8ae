//! A replacement of `redis-cli`, for health checks, scripts and people. It prints the same output
//! and uses the server only through a connection.

mod arguments;
pub(crate) mod connection;
mod format;
mod lines;
mod prompt;
pub(crate) mod server_options;
mod session;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use lockwheel_engine::settings::{LOCKWHEEL_VERSION, REDIS_VERSION};

use self::arguments::Arguments;
use self::server_options::without_uri;
use self::session::{ExitWith, Session, Settings, print_error, write_out};

/// Exit status if an option is invalid.
const UNUSABLE: u8 = 1;

/// Runs the program with the arguments after its name.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("redis-cli");
    match Arguments::try_parse_from([name].into_iter().chain(arguments)) {
        Ok(arguments) => match run(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(ExitWith(status)) => ExitCode::from(status),
        },
        Err(error) => refuse(&without_uri(error)),
    }
}

fn run(arguments: Arguments) -> Result<(), ExitWith> {
    if arguments.version {
        let line = format!("redis-cli {REDIS_VERSION} lockwheel={LOCKWHEEL_VERSION}\n");
        return write_out(line.as_bytes());
    }
    arguments.server.hide_password();
    if arguments.server.shows_password() {
        print_error(
            "Warning: Using a password with '-a' or '-u' option on the command line interface \
             may not be safe.",
        );
    }
    let interval = Duration::try_from_secs_f64(arguments.interval).unwrap_or_default();
    let mut session = Session::new(Settings {
        address: arguments.server.address(),
        #[cfg(feature = "tls")]
        tls: arguments.server.tls().cloned(),
        login: arguments.login(),
        style: arguments.style(),
        ends_at_error: arguments.ends_at_error && !arguments.command.is_empty(),
        interval,
        reconnects: arguments.command.is_empty(),
    });
    let mut words: Vec<Vec<u8>> =
        arguments.command.into_iter().map(OsStringExt::into_vec).collect();
    if words.is_empty() {
        return prompt::run(&mut session);
    }
    if arguments.last_from_stdin {
        let mut last = Vec::new();
        std::io::stdin().read_to_end(&mut last).map_err(|_| ExitWith(1))?;
        words.push(last);
    }
    match session.send_repeatedly(&words, arguments.repeat)? {
        true => Ok(()),
        false => Err(ExitWith(1)),
    }
}

/// Prints the error of an invalid option, in the text of `redis-cli` where there is one.
fn refuse(error: &clap::Error) -> ExitCode {
    let option = match error.get(ContextKind::InvalidArg) {
        // Removes the name of the option's value.
        Some(ContextValue::String(option)) => option.split(' ').next().unwrap_or_default(),
        _ => "",
    };
    let lacks_value = error
        .get(ContextKind::InvalidValue)
        .is_none_or(|value| matches!(value, ContextValue::String(value) if value.is_empty()));
    match (error.kind(), option) {
        (ErrorKind::InvalidValue, "-h") if lacks_value => {
            let help = Arguments::command().render_help().to_string();
            let _ = write_out(help.as_bytes());
            ExitCode::SUCCESS
        }
        (ErrorKind::UnknownArgument | ErrorKind::InvalidValue, option) if lacks_value => {
            print_error(&format!("Unrecognized option or bad number of args for: '{option}'"));
            ExitCode::from(UNUSABLE)
        }
        (ErrorKind::DisplayHelp, _) => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ => {
            let _ = error.print();
            ExitCode::from(UNUSABLE)
        }
    }
}
