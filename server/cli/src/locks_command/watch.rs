//! `lockwheel locks --watch` on a terminal: reads the locks on one thread and the keys on another,
//! and shows the last state.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SigSet, Signal};
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;

use super::reading::{LockId, Reading, connect, read, read_details, read_role};
use super::screen::{alarm, draw};
use super::view::{State, View};
use crate::limits::WATCH_INTERVAL;
use crate::redis_cli::connection::{Connection, error_text};
use crate::redis_cli::server_options::ServerOptions;
use crate::run_command::SIGNAL_STATUS_BASE;

/// How long the server may take for a reply. As long as a page of monitoring waits.
const REPLY_TIMEOUT: Duration = crate::limits::ADMIN_COMMAND_TIMEOUT;

/// What changes the screen or ends it.
enum Message {
    State(Box<State>),
    /// The state cannot be read, and why.
    Lost(String),
    /// A key, another size, or that there will be no more keys.
    Input(io::Result<Event>),
    Signal(Signal),
}

/// Shows the locks until the user ends it.
pub(super) fn show(server: ServerOptions, pattern: String) -> Result<ExitCode, String> {
    let address = server.address().to_string();
    let mut reader = Reader { server, pattern, connection: None };
    let first = reader.try_read(None);
    let failed =
        |error: io::Error| format!("Could not read the locks of {address}: {}", reason(&error));
    let state = first.map_err(failed)??;
    let view = View::new(address, state);

    let mut signals = SigSet::empty();
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        signals.add(signal);
    }
    // All threads inherit this: only the one that waits for the signals gets them.
    let _ = signals.thread_block();
    end_at_panics();
    let (sender, messages) = channel();
    let (orders, received) = channel();
    let screen_failed = |error: io::Error| format!("Could not show the locks: {error}");
    let shown = ratatui::try_init().and_then(|terminal| {
        start(reader, received, &sender, signals);
        watch(terminal, view, &messages, &orders)
    });
    // Also after a start that has failed half-way.
    let _ = ratatui::try_restore();
    shown.map_err(screen_failed)
}

/// A panic of any thread ends the program, after the terminal was restored.
fn end_at_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = execute!(io::stdout(), Show);
        hook(panic);
        std::process::exit(101);
    }));
}

/// Starts the threads that send messages.
fn start(
    mut reader: Reader,
    orders: Receiver<Option<LockId>>,
    sender: &Sender<Message>,
    signals: SigSet,
) {
    let states = sender.clone();
    thread::spawn(move || {
        let (mut opened, mut is_wanted) = (None, true);
        while is_wanted {
            match orders.recv_timeout(WATCH_INTERVAL) {
                Ok(order) => opened = order,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let message = match reader.read(opened.as_ref()) {
                Ok(state) => Message::State(Box::new(state)),
                Err(reason) => Message::Lost(reason),
            };
            is_wanted = states.send(message).is_ok();
        }
    });
    let keys = sender.clone();
    thread::spawn(move || {
        let mut goes_on = true;
        while goes_on {
            let event = event::read();
            goes_on = event.is_ok();
            goes_on &= keys.send(Message::Input(event)).is_ok();
        }
    });
    let caught = sender.clone();
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let _ = caught.send(Message::Signal(signal));
        }
    });
}

/// Shows the view, and changes it at each message, until a key or a signal ends it.
fn watch(
    mut terminal: DefaultTerminal,
    mut view: View,
    messages: &Receiver<Message>,
    orders: &Sender<Option<LockId>>,
) -> io::Result<ExitCode> {
    // Colours are not wanted if this is set: see no-color.org.
    let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let alarm = alarm(has_colors);
    loop {
        terminal.draw(|frame| draw(frame, &mut view, alarm))?;
        match messages.recv().map_err(io::Error::other)? {
            Message::State(state) => view.update(*state),
            Message::Lost(reason) => view.lost = Some(reason),
            Message::Input(Ok(Event::Key(key))) => {
                let opened = view.opened_id().cloned();
                if !view.press(key) {
                    return Ok(ExitCode::SUCCESS);
                }
                if view.opened_id() != opened.as_ref() {
                    // The details are read at once.
                    let _ = orders.send(view.opened_id().cloned());
                }
            }
            // Another size: it is drawn anew.
            Message::Input(Ok(_)) => {}
            Message::Input(Err(error)) => return Err(error),
            Message::Signal(signal) => {
                let status = u8::try_from(SIGNAL_STATUS_BASE + signal as i32);
                return Ok(ExitCode::from(status.unwrap_or(u8::MAX)));
            }
        }
    }
}

/// Reads states, and connects again after a failure.
struct Reader {
    server: ServerOptions,
    pattern: String,
    connection: Option<Connection>,
}

impl Reader {
    /// The present state, with the details of one lock; else why it is not known.
    fn read(&mut self, opened: Option<&LockId>) -> Result<State, String> {
        self.try_read(opened).unwrap_or_else(|error| Err(reason(&error)))
    }

    fn try_read(&mut self, opened: Option<&LockId>) -> io::Result<Result<State, String>> {
        // It is kept if all succeeds.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match connect(&self.server, Some(REPLY_TIMEOUT))? {
                Ok(connection) => connection,
                Err(text) => return Ok(Err(text)),
            },
        };
        let Reading { now_ms, leader, locks } = match read(&mut connection, &self.pattern)? {
            Ok(reading) => reading,
            Err(text) => return Ok(Err(text)),
        };
        let role = read_role(&mut connection)?;
        let details = match opened {
            Some(id) => match read_details(&mut connection, id)? {
                Ok(details) => Some((id.clone(), details)),
                Err(text) => return Ok(Err(text)),
            },
            None => None,
        };
        let locks = locks.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
        self.connection = Some(connection);
        Ok(Ok(State { at_ms: now_ms_of_machine(), now_ms, leader, role, locks, details }))
    }
}

#[expect(clippy::disallowed_methods, reason = "the time of the day, for the user")]
fn now_ms_of_machine() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

/// Why the server cannot be read.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "the server does not reply".to_owned()
        }
        _ => error_text(error),
    }
}
