//! `lockwheel locks`: shows which client holds which lock and which clients wait. It uses the
//! server only through a connection.
//!
//! `reading` asks the server, `table` prints lines. With `--watch` on a terminal, `view` is what is
//! shown and what keys do, `screen` draws it, `watch` has the terminal and the threads.

mod reading;
mod screen;
#[cfg(test)]
mod screen_tests;
mod table;
mod text;
mod view;
mod watch;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;

use crate::redis_cli::server_options::{ServerOptions, without_uri};

/// Shows which client holds which lock, and which clients wait for it
#[derive(Parser)]
#[command(name = "lockwheel locks", disable_help_flag = true)]
struct Arguments {
    #[command(flatten)]
    server: ServerOptions,
    /// Show the locks live on the whole terminal; without one, or with --json, again every second
    #[arg(long)]
    watch: bool,
    /// Print JSON: one line for each lock
    #[arg(long)]
    json: bool,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Only keys that match this pattern, as for KEYS
    #[arg(default_value = "*")]
    pattern: String,
}

/// Runs the subcommand with the arguments after its name.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let Arguments { server, watch, json, pattern, .. } = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let status = u8::from(error.use_stderr());
            let _ = without_uri(error).print();
            return ExitCode::from(status);
        }
    };
    server.hide_password();
    let shown = match watch && !json && io::stdout().is_terminal() {
        true => watch::show(server, pattern),
        false => table::show(&server, &pattern, json, watch).map(|()| ExitCode::SUCCESS),
    };
    shown.unwrap_or_else(|error| crate::fail(&error))
}
