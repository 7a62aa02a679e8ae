//! Messages to standard error, written by a thread of their own: the command must be ended also if
//! their reader has stopped.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::limits::LOCK_MESSAGES_TIMEOUT;

/// The messages. Dropped, waits for a moment until they are written.
pub(super) struct Messages {
    sender: Option<Sender<String>>,
    /// Ends when all are written.
    written: Receiver<()>,
}

impl Messages {
    pub(super) fn start() -> io::Result<Messages> {
        let (sender, messages) = channel();
        let (written_sender, written) = channel();
        thread::Builder::new().name("lockwheel-messages".into()).spawn(move || {
            messages.iter().for_each(|text: String| print(&text));
            drop::<Sender<()>>(written_sender);
        })?;
        Ok(Messages { sender: Some(sender), written })
    }

    pub(super) fn send(&self, text: &str) {
        if let Some(sender) = &self.sender {
            // Fails if the thread has panicked.
            let _ = sender.send(text.to_owned());
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.sender = None;
        // It sends nothing.
        let _ = self.written.recv_timeout(LOCK_MESSAGES_TIMEOUT);
    }
}

/// Prints a message to standard error, which may be closed.
pub(super) fn print(text: &str) {
    let _ = writeln!(io::stderr(), "lockwheel lock: {}", text.trim());
}
