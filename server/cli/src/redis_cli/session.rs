//! Commands said to a server one after the other: connects when it must, once more if the
//! connection is gone, and prints what comes back.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use lockwheel_resp::Reply;

use super::connection::{Connection, Login, Place, told};
use super::format::{Style, is_text, print, print_text};

/// Nothing more can be done: the status to end with.
pub(super) struct End(pub(super) u8);

/// What a session is to be like.
pub(super) struct Settings {
    pub(super) place: Place,
    pub(super) login: Login,
    pub(super) style: Style,
    /// An answer that is an error ends it.
    pub(super) errors_count: bool,
    pub(super) interval: Duration,
    /// There is somebody, or a list of commands, to go on with if one cannot be said.
    pub(super) goes_on: bool,
}

pub(super) struct Session {
    pub(super) settings: Settings,
    connection: Option<Connection>,
    in_transaction: bool,
}

impl Session {
    pub(super) fn new(settings: Settings) -> Session {
        Session { settings, connection: None, in_transaction: false }
    }

    /// Connects anew; what goes wrong is said. A server that refuses the password may be spoken to
    /// all the same.
    pub(super) fn connect(&mut self) -> bool {
        self.in_transaction = false;
        let Settings { place, login, .. } = &self.settings;
        self.connection = match Connection::open(place) {
            Ok(connection) => Some(connection),
            Err(error) => {
                complain(&format!("Could not connect to Redis at {place}: {}", told(&error)));
                None
            }
        };
        let Some(connection) = &mut self.connection else { return false };
        match connection.log_in(login) {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => complain(&refusal),
            Err(error) => {
                complain(&format!("Error: {}", told(&error)));
                self.connection = None;
            }
        }
        self.connection.is_some()
    }

    /// What stands before a line that is typed.
    pub(super) fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".to_owned();
        }
        let database = match self.settings.login.database {
            0 => String::new(),
            database => format!("[{database}]"),
        };
        let transaction = if self.in_transaction { "(TX)" } else { "" };
        format!("{}{database}{transaction}> ", self.settings.place)
    }

    /// Says a command so many times, -1 for ever, and prints the answers. `false` if there is no
    /// connection any more.
    pub(super) fn issue(&mut self, words: &[Vec<u8>], times: i64) -> Result<bool, End> {
        let mut said = 0;
        while times < 0 || said < times {
            if !self.say(words)? {
                return Ok(false);
            }
            said += 1;
            if !self.settings.interval.is_zero() && said != times {
                thread::park_timeout(self.settings.interval);
            }
        }
        Ok(true)
    }

    /// Says it once; if the connection turns out to be gone, on a new one.
    fn say(&mut self, words: &[Vec<u8>]) -> Result<bool, End> {
        let had_one = self.connection.is_some();
        if !had_one && !self.connect() {
            return Ok(false);
        }
        let Err(error) = self.exchange(words)? else { return Ok(true) };
        let ends_it = words[0].eq_ignore_ascii_case(b"shutdown");
        if ends_it && is_gone(&error) {
            self.connection = None;
            return Ok(true);
        }
        if had_one && self.settings.goes_on && is_gone(&error) {
            if !self.connect() {
                return Ok(false);
            }
            if self.exchange(words)?.is_ok() {
                return Ok(true);
            }
        }
        complain(&format!("Error: {}", told(&error)));
        self.connection = None;
        if self.settings.goes_on { Ok(false) } else { Err(End(1)) }
    }

    /// One command and its reply, or all that come from then on.
    fn exchange(&mut self, words: &[Vec<u8>]) -> Result<io::Result<()>, End> {
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
            if let (Reply::Error(text), true) = (&reply, self.settings.errors_count) {
                complain(&String::from_utf8_lossy(text));
                return Err(End(1));
            }
            let style = self.settings.style;
            write_out(&if is_text(words) { print_text(&reply) } else { print(&reply, style) })?;
            let streams = (subscribes || &*name == b"monitor") && !reply.is_error();
            if !streams && !is_message {
                follow(&mut self.settings.login, &mut self.in_transaction, words, &reply);
                return Ok(Ok(()));
            }
        }
    }
}

/// Keeps what the prompt shows as the server has it.
fn follow(login: &mut Login, in_transaction: &mut bool, words: &[Vec<u8>], reply: &Reply) {
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

/// Prints at once, for whoever reads along. If nobody does, there is no more to do.
pub(super) fn write_out(bytes: &[u8]) -> Result<(), End> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|_| End(1))
}

/// To standard error, which may be closed.
pub(super) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
