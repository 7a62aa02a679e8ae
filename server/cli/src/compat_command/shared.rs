//! What `lockwheel compat`, `lockwheel prove` and `lockwheel judge` share: how they begin and end,
//! spans of time, logins, TLS, signals, output, and advice for errors.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
#[cfg(feature = "tls")]
use lockwheel_compat::wire::address::Endpoint;
#[cfg(feature = "tls")]
use lockwheel_compat::wire::tls::TlsClient;
use lockwheel_compat::{Address, Interrupt, time::show_span};
use lockwheel_engine::timing::time::{self, SPAN_SYNTAX};
use tokio::signal::unix::{SignalKind, signal};

use crate::redis_cli::server_options::{PASSWORD_VARIABLE, without_uri};
#[cfg(feature = "tls")]
use crate::tls_client::TlsOptions;

/// Exit status if something was found.
pub(crate) const FOUND: u8 = 1;
/// Exit status if the command could not run.
pub(crate) const UNUSABLE: u8 = 2;
/// Exit status after a second Ctrl-C, as in a shell.
const INTERRUPTED: i32 = 130;

/// What to do about a server that cannot be used: a part of the error, and the advice.
const ADVICE: &[(&str, &str)] = &[
    ("Connection refused", "start the server, or correct the host and the port"),
    ("lookup address", "correct the host"),
    ("no connection in time", "correct the host and the port, or open the firewall"),
    ("No route to host", "correct the host and the port, or open the firewall"),
    ("unreachable", "correct the host and the port, or open the firewall"),
    ("No such file", "start the server, or correct the path of its socket"),
    ("Permission denied", "run as a user that may use the socket"),
    ("NOAUTH", "write redis://:password@host:port, or set REDISCLI_AUTH"),
    ("WRONGPASS", "correct the user and the password in the URL or in REDISCLI_AUTH"),
    ("invalid password", "correct the password in the URL or in REDISCLI_AUTH"),
    ("without any password", "leave the password out of the URL, and unset REDISCLI_AUTH"),
    ("NOPERM", "give the user all commands, keys and channels: ACL SETUSER name ~* &* +@all"),
    ("DENIED", "protected mode: connect from the server's machine, or set a password there"),
    ("CertificateRequired", "present a certificate with --cert FILE and --key FILE"),
    ("invalid peer certificate", "trust its authority with --cacert FILE, or use --insecure"),
    ("no TLS connection", "write redis:// if the port is not for TLS"),
    ("before its first reply", "correct the port, or write rediss:// if it is for TLS"),
];

/// Runs a subcommand of this name with its arguments. `perform` returns the exit status, or a
/// problem on one line.
pub(crate) fn run<A: Parser>(
    name: &str,
    arguments: &[String],
    perform: impl FnOnce(&A) -> Result<u8, String>,
) -> ExitCode {
    let words = [name].into_iter().chain(arguments.iter().map(String::as_str));
    let status = match A::try_parse_from(words).map_err(without_uri) {
        Ok(arguments) => perform(&arguments).unwrap_or_else(|problem| {
            let _ = writeln!(io::stderr(), "{name}: {problem}");
            UNUSABLE
        }),
        Err(error) => {
            // Standard output may be closed.
            let _ = error.print();
            u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
        }
    };
    ExitCode::from(status)
}

/// The first sentence of an error on one line, with what to do about it. The advice of the command
/// precedes the general one.
pub(crate) fn advised(text: &str, own: &[(&str, &str)]) -> String {
    // Errors of servers have advice of their own in the sentences that follow.
    let first = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    // An error of the system that also files give.
    let is_of_server = |part: &str| {
        !matches!(part, "No such file" | "Permission denied") || first.contains("unix://")
    };
    let fits = |(part, _): &&(&str, &str)| first.contains(part) && is_of_server(part);
    match own.iter().chain(ADVICE).find(fits) {
        Some((_, advice)) => format!("{first}: {advice}"),
        None => first.to_owned(),
    }
}

/// A span of time that is not zero.
#[derive(Clone, Copy)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let span_ms = time::span(text.as_bytes()).and_then(|span| u64::try_from(span.0).ok());
        let span_ms = span_ms.filter(|&span_ms| span_ms > 0);
        span_ms
            .map(|span_ms| Span(Duration::from_millis(span_ms)))
            .ok_or_else(|| format!("it is {SPAN_SYNTAX}, or not positive"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_span(self.0))
    }
}

/// Uses the password of the environment if the URL has none.
pub(crate) fn complete_password(address: &mut Address) {
    if address.password.is_none() {
        let password = std::env::var(PASSWORD_VARIABLE).ok();
        address.password = password.filter(|password| !password.is_empty());
    }
}

/// Sets how to connect to the servers whose URLs ask for TLS.
#[cfg(feature = "tls")]
pub(crate) fn set_tls<'a>(
    addresses: impl Iterator<Item = &'a mut Address>,
    tls: &TlsOptions,
) -> Result<(), String> {
    let mut addresses: Vec<&mut Address> = addresses.collect();
    addresses.retain(|address| matches!(address.endpoint, Endpoint::Tls(..)));
    if addresses.is_empty() {
        return Ok(());
    }
    let client = TlsClient::new(tls.config()?, tls.sni.clone());
    addresses.into_iter().for_each(|address| address.set_tls(&client));
    Ok(())
}

/// Prints to standard output, which may be closed.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Whether standard output shows colours.
pub(crate) fn wants_colours() -> bool {
    let no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    io::stdout().is_terminal() && !no && !dumb
}

/// Lets the first signal stop the run of this command after it has cleaned up, and the second at
/// once.
pub(crate) fn handle_signals(interrupt: &Interrupt, command: &'static str) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    // Installed before the run begins: an early signal must not end the program without cleaning
    // up.
    let signals = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    };
    let (Ok(mut end), Ok(mut terminate)) = signals else { return };
    let interrupt = interrupt.clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            for _ in 0..2 {
                tokio::select! { _ = end.recv() => {} _ = terminate.recv() => {} }
                if interrupt.is_asked() {
                    std::process::exit(INTERRUPTED);
                }
                interrupt.ask();
                let text = "stopping and cleaning up; press Ctrl-C again to end at once";
                let _ = writeln!(io::stderr(), "\n{command}: {text}");
            }
        });
    });
}
