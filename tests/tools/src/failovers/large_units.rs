//! A client whose values and scripts are large: other clients wait until a majority has their
//! effects.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lockwheel_prove::demo::place::Place;

use crate::servers::open;

/// How long one request may take: a slow link needs it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(500);

/// Sets keys; the number of them and the value are its arguments.
const SCRIPT: &str = "for i = 1, ARGV[1] do redis.call('SET', 'large-' .. i, ARGV[2]) end return 1";

/// The client, on a thread of its own.
pub(crate) struct LargeUnits {
    /// Sender whose end ends the client.
    running: Sender<()>,
    thread: JoinHandle<u64>,
}

impl LargeUnits {
    /// Sends requests with effects of about `bytes` bytes to the server that serves; none if 0.
    pub(crate) fn start(places: Vec<Place>, bytes: usize) -> LargeUnits {
        let (running, ended) = channel();
        let thread = std::thread::spawn(move || {
            let value = "v".repeat(bytes);
            let (count, short) = ((bytes / 100).to_string(), "v".repeat(80));
            let requests = [
                vec!["SET", "large", &value],
                vec!["EVAL", SCRIPT, "0", &count, &short],
                vec!["DEL", "large"],
            ];
            let (mut done, mut server) = (0, 0);
            while bytes > 0 && ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let wire = open(&places[server], ANSWER_TIMEOUT);
                let request = &requests[usize::try_from(done).unwrap_or(0) % requests.len()];
                let reply = wire.and_then(|mut wire| wire.call(request).ok());
                match reply.is_some_and(|reply| reply.kind != b'-') {
                    true => done += 1,
                    false => server = (server + 1) % places.len(),
                }
            }
            done
        });
        LargeUnits { running, thread }
    }

    /// Ends the client; returns how many requests were done.
    pub(crate) fn end(self) -> u64 {
        drop(self.running);
        self.thread.join().unwrap_or_default()
    }
}
