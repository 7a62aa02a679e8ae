//! Sends commands to a server one after the other and prints the replies. Connects when necessary,
//! and again once if the connection is lost.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use lockwheel_resp::Reply;

use super::connection::{Address, Connection, Login, error_text};
use super::format::{Style, is_text, print, print_text};
#[cfg(feature = "tls")]
use crate::tls_client::TlsOptions;

/// Ends the program with this exit status.
pub(super) struct ExitWith(pub(super) u8);

/// The settings of a session.
pub(super) struct Settings {
    pub(super) address: Address,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsOptions>,
    pub(super) login: Login,
    pub(super) style: Style,
    /// Whether an error reply ends the program.
    pub(super) ends_at_error: bool,
    pub(super) interval: Duration,
    /// Whether more commands can follow after a failed one: from a terminal or a pipe.
    pub(super) reconnects: bool,
}

/// A connection to a server that is established again when it is lost, and the state of the prompt.
pub(super) struct Session {
    pub(super) settings: Settings,
    connection: Option<Connection>,
    in_transaction: bool,
}

impl Session {
    pub(super) fn new(settings: Settings) -> Session {
        Session { settings, connection: None, in_transaction: false }
    }

    /// Connects again and prints errors. The connection stays open if the server refuses the
    /// password.
    pub(super) fn connect(&mut self) -> bool {
        self.in_transaction = false;
        let Settings { address, login, .. } = &self.settings;
        #[cfg(feature = "tls")]
        let opened = Connection::open(address, None, self.settings.tls.as_ref());
        #[cfg(not(feature = "tls"))]
        let opened = Connection::open(address, None);
        self.connection = match opened {
            Ok(connection) => Some(connection),
            Err(error) => {
                print_error(&format!(
                    "Could not connect to Redis at {address}: {}",
                    error_text(&error)
                ));
                None
            }
        };
        let Some(connection) = &mut self.connection else { return false };
        match connection.log_in(login) {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => print_error(&refusal),
            Err(error) => {
                print_error(&format!("Error: {}", error_text(&error)));
                self.connection = None;
            }
        }
        self.connection.is_some()
    }

    /// The prompt on a terminal.
    pub(super) fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".to_owned();
        }
        let database = match self.settings.login.database {
            0 => String::new(),
            database => format!("[{database}]"),
        };
        let transaction = if self.in_transaction { "(TX)" } else { "" };
        format!("{}{database}{transaction}> ", self.settings.address)
    }

    /// Sends a command this many times, -1 for ever, and prints the replies. Returns whether there
    /// still is a connection.
    pub(super) fn send_repeatedly(
        &mut self,
        words: &[Vec<u8>],
        times: i64,
    ) -> Result<bool, ExitWith> {
        let mut sent = 0;
        while times < 0 || sent < times {
            if !self.send_once(words)? {
                return Ok(false);
            }
            sent += 1;
            if !self.settings.interval.is_zero() && sent != times {
                thread::park_timeout(self.settings.interval);
            }
        }
        Ok(true)
    }

    /// Sends a command once; if the connection turns out to be lost, once more on a new connection.
    fn send_once(&mut self, words: &[Vec<u8>]) -> Result<bool, ExitWith> {
        let was_connected = self.connection.is_some();
        if !was_connected && !self.connect() {
            return Ok(false);
        }
        let Err(error) = self.exchange(words)? else { return Ok(true) };
        let ends_it = words[0].eq_ignore_ascii_case(b"shutdown");
        if ends_it && is_gone(&error) {
            self.connection = None;
            return Ok(true);
        }
        if was_connected && self.settings.reconnects && is_gone(&error) {
            if !self.connect() {
                return Ok(false);
            }
            if self.exchange(words)?.is_ok() {
                return Ok(true);
            }
        }
        print_error(&format!("Error: {}", error_text(&error)));
        self.connection = None;
        if self.settings.reconnects { Ok(false) } else { Err(ExitWith(1)) }
    }

    /// Sends a command and prints its reply, or all messages from then on.
    fn exchange(&mut self, words: &[Vec<u8>]) -> Result<io::Result<()>, ExitWith> {
        let Some(connection) = &mut self.connection else { return Ok(Ok(())) };
        if let Err(error) = connection.send(words) {
            return Ok(Err(error));
        }
        let name = words[0].to_ascii_lowercase();
        let subscribes = matches!(&*name, b"subscribe" | b"psubscribe" | b"ssubscribe");
        if subscribes && self.settings.style != Style::Raw {
            write_out(b"Reading messages... (press Ctrl-C to quit)\n")?;
        }
        loop {
            let reply = match connection.read() {
                Ok(reply) => reply,
                Err(error) => return Ok(Err(error)),
            };
            let is_message = matches!(reply, Reply::Push(_));
            if is_message && !subscribes && !io::stdout().is_terminal() {
                continue;
            }
            if let (Reply::Error(text), true) = (&reply, self.settings.ends_at_error) {
                print_error(&String::from_utf8_lossy(text));
                return Err(ExitWith(1));
            }
            let style = self.settings.style;
            write_out(&if is_text(words) { print_text(&reply) } else { print(&reply, style) })?;
            let streams = (subscribes || &*name == b"monitor") && !reply.is_error();
            if !streams && !is_message {
                track_state(&mut self.settings.login, &mut self.in_transaction, words, &reply);
                return Ok(Ok(()));
            }
        }
    }
}

/// Updates the database and the transaction that the prompt shows.
fn track_state(login: &mut Login, in_transaction: &mut bool, words: &[Vec<u8>], reply: &Reply) {
    if reply.is_error() {
        return;
    }
    match words[0].to_ascii_lowercase().as_slice() {
        b"select" if words.len() == 2 => {
            let number = std::str::from_utf8(&words[1]).ok().and_then(|text| text.parse().ok());
            login.database = number.unwrap_or(login.database);
        }
        b"multi" => *in_transaction = true,
        b"exec" | b"discard" => *in_transaction = false,
        b"reset" => (login.database, *in_transaction) = (0, false),
        _ => {}
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Prints and flushes. Ends the program if standard output is closed.
pub(super) fn write_out(bytes: &[u8]) -> Result<(), ExitWith> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|_| ExitWith(1))
}

/// Prints to standard error, which may be closed.
pub(super) fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
