//! What a proxy does with requests: correct in all that a client can prove, or wrong in one way.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockwheel_compat::random::Random;
use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::frame::Frame;

/// The part of the requests, and of the replies, that an unreliable network loses or delays.
const LOST_ONCE_IN: u64 = 60;
const DELAYED_ONCE_IN: u64 = 8;
/// The longest delay of an unreliable network.
const DELAY_MAX_MS: i64 = 300;
/// The part of the requests that a slow network delays.
const LATE_ONCE_IN: u64 = 4;
/// The part of the requests that a wrong server answers wrongly.
const WRONG_ONCE_IN: u64 = 8;

/// Random choices of several threads.
struct Choices(Mutex<Random>);

impl Choices {
    fn new() -> Choices {
        Choices(Mutex::new(Random::new(1)))
    }

    fn once_in(&self, times: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).once_in(times)
    }

    fn between(&self, least: i64, most: i64) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).between(least, most)
    }
}

/// Passes on each request and its reply.
pub fn pass(words: &[String], server: &mut Wire) -> io::Result<Frame> {
    server.call(words)
}

/// A correct server on a bad network: connections end before or after the execution of a request,
/// and requests and replies come late.
pub fn unreliable() -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    let choices = Choices::new();
    let fail = move || -> io::Result<()> {
        if choices.once_in(LOST_ONCE_IN) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if choices.once_in(DELAYED_ONCE_IN) {
            let delay_ms = choices.between(0, DELAY_MAX_MS);
            time::sleep(Duration::from_millis(delay_ms.unsigned_abs()));
        }
        Ok(())
    };
    move |words, server| {
        if !is_of_lock(words) {
            return server.call(words);
        }
        fail()?;
        let reply = server.call(words)?;
        fail()?;
        Ok(reply)
    }
}

/// A correct server that some of these requests reach after this delay. If the command is empty,
/// all requests to locks are meant.
pub fn late(
    command: &'static str,
    delay: Duration,
    then: impl Fn(&[String], &mut Wire) -> io::Result<Frame>,
) -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    let choices = Choices::new();
    move |words, server| {
        let is_meant = words[0] == command || command.is_empty() && is_of_lock(words);
        if is_meant && choices.once_in(LATE_ONCE_IN) {
            time::sleep(delay);
        }
        then(words, server)
    }
}

/// A server that lets leases of `SET` end after a third of their time.
pub fn short_leases(words: &[String], server: &mut Wire) -> io::Result<Frame> {
    let mut words = words.to_vec();
    if let Some(place) = words.iter().position(|word| word == "PX")
        && let Some(Ok(lease_ms)) = words.get(place + 1).map(|word| word.parse::<u64>())
    {
        words[place + 1] = (lease_ms / 3).max(1).to_string();
    }
    server.call(&words)
}

/// A server that ignores the option `NX` of some requests.
pub fn without_nx() -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    let choices = Choices::new();
    move |words, server| {
        let ignores = words[0] == "SET" && choices.once_in(WRONG_ONCE_IN);
        let kept = words.iter().filter(|word| !ignores || *word != "NX");
        server.call(&kept.collect::<Vec<_>>())
    }
}

/// A server that drops the key of some requests before it executes them.
pub fn dropping() -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    let choices = Choices::new();
    move |words, server| {
        if let Some(key) = key_of_script(words)
            && choices.once_in(WRONG_ONCE_IN)
        {
            server.call(&["DEL", key])?;
        }
        server.call(words)
    }
}

/// A server that loses the lock when a script with these words answers with 0: a client has
/// released one of several holds.
pub fn losing_holds(script: &'static str) -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    move |words, server| {
        let reply = server.call(words)?;
        if let Some(key) = key_of_script(words)
            && words[1].contains(script)
            && is_zero(&reply)
        {
            server.call(&["DEL", key])?;
        }
        Ok(reply)
    }
}

/// A server that answers a script with these words with success although it changed nothing.
pub fn always_successful(
    script: &'static str,
) -> impl Fn(&[String], &mut Wire) -> io::Result<Frame> {
    move |words, server| {
        let mut reply = server.call(words)?;
        if key_of_script(words).is_some() && words[1].contains(script) && is_zero(&reply) {
            reply.text = b"1".to_vec();
        }
        Ok(reply)
    }
}

/// Whether it is a request of a client to a lock. `DEL` is one only in wrong recipes; otherwise it
/// removes the keys after a run.
pub(super) fn is_of_lock(words: &[String]) -> bool {
    let lock_commands = ["SET", "EVAL", "LOCK.ACQUIRE", "LOCK.RENEW", "LOCK.RELEASE"];
    words.first().is_some_and(|word| lock_commands.contains(&&**word))
}

/// The first key of a script.
fn key_of_script(words: &[String]) -> Option<&str> {
    match words {
        [command, _, _, key, ..] if command == "EVAL" => Some(key),
        _ => None,
    }
}

fn is_zero(reply: &Frame) -> bool {
    reply.kind == b':' && reply.text == b"0"
}
