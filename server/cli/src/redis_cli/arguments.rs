//! The supported options of `redis-cli`.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use clap::Parser;

use super::connection::{Login, Protocol};
use super::format::Style;
use super::server_options::ServerOptions;

const REMARKS: &str = "\
Without a command, commands are read from standard input, one per line; arguments may be quoted, and
`quit` ends the program. The environment variable REDISCLI_AUTH can hold the password.

Exit status: 0 the server has replied, 1 the server could not be reached, refused the password, or,
with -e, replied with an error.";

/// Sends a command to a server that speaks the Redis protocol, and prints the reply
#[derive(Parser)]
#[command(
    name = "redis-cli",
    override_usage = "redis-cli [OPTIONS] [cmd [arg [arg ...]]]",
    after_help = REMARKS,
    disable_help_flag = true,
    args_override_self = true
)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) server: ServerOptions,
    /// Use RESP2
    #[arg(short = '2')]
    resp2: bool,
    /// Use RESP3
    #[arg(short = '3')]
    resp3: bool,
    /// Send the command this many times; -1 for ever
    #[arg(short = 'r', value_name = "repeat", default_value_t = 1)]
    #[arg(allow_negative_numbers = true)]
    pub(super) repeat: i64,
    /// Wait this many seconds between two commands, such as 0.1
    #[arg(short = 'i', value_name = "interval", default_value_t = 0.0)]
    pub(super) interval: f64,
    /// Read the last argument from standard input
    #[arg(short = 'x')]
    pub(super) last_from_stdin: bool,
    /// Exit with status 1 if the reply is an error
    #[arg(short = 'e')]
    pub(super) ends_at_error: bool,
    /// Print raw replies (the default if the output is not a terminal)
    #[arg(long, overrides_with_all = ["formatted", "json"])]
    raw: bool,
    /// Print formatted replies (the default on a terminal)
    #[arg(long = "no-raw", overrides_with_all = ["raw", "json"])]
    formatted: bool,
    /// Print JSON, and use RESP3 if the server supports it
    #[arg(long, overrides_with_all = ["raw", "formatted"])]
    json: bool,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print the version
    #[arg(short = 'v', long)]
    pub(super) version: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, hide = true)]
    pub(super) command: Vec<OsString>,
}

impl Arguments {
    /// The login to send first.
    pub(super) fn login(&self) -> Login {
        let protocol = match (self.resp2, self.resp3, self.json) {
            (true, ..) => Protocol::Resp2,
            (_, true, _) => Protocol::Resp3,
            (_, _, true) => Protocol::Resp3IfSupported,
            _ => Protocol::Resp2,
        };
        self.server.login(protocol)
    }

    pub(super) fn style(&self) -> Style {
        if self.json {
            Style::Json
        } else if self.raw || !(self.formatted || io::stdout().is_terminal()) {
            Style::Raw
        } else {
            Style::Standard
        }
    }
}
