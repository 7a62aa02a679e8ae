//! The clients of a history: state machines that react to replies, messages, timers and lost
//! connections.

mod in_process;
mod keeper;
mod locks;
mod marks;
mod native_locks;
mod observer;
mod recipes;
mod redlock;
mod snapshots;
mod subscriber;

use lockwheel_compat::wire::frame::Frame;

pub use locks::PERMITS;
pub use recipes::request;

use crate::core::{Core, Notice};
use crate::plan::{Recipe, Role};

/// A client.
pub trait Actor {
    /// Handles a notice.
    fn notice(&mut self, core: &mut Core, notice: Notice);

    /// Called after each step of the servers. Only in-process clients need this.
    fn after_step(&mut self, _core: &mut Core) {}

    /// Called at the end of the history.
    fn end(&mut self, _core: &mut Core) {}
}

/// The client with this number in the plan.
pub fn create(core: &mut Core, client: usize) -> Box<dyn Actor> {
    match core.plan.roles[client].1 {
        Role::Locks(Recipe::Redlock, _) => Box::new(redlock::Redlock::new(core, client)),
        Role::Locks(recipe, lock) => Box::new(locks::LockClient::new(core, client, recipe, lock)),
        Role::NativeLocks(kind, lock) => {
            Box::new(native_locks::NativeClient::new(core, client, kind, kind.key(lock)))
        }
        Role::Observes(kind, lock) => {
            Box::new(observer::Observer::new(core, client, kind.key(lock)))
        }
        Role::WritesMarks => Box::new(marks::MarkWriter::new(core, client)),
        Role::ReadsMarks | Role::ReadsMarksOf(_) => Box::new(marks::MarkReader::new(core, client)),
        Role::ReceivesMarks => Box::new(subscriber::Subscriber::new(core, client)),
        Role::InProcess => Box::new(in_process::InProcess::new(core, client)),
        Role::Keeps => Box::new(keeper::Keeper::new(core, client)),
        Role::Snapshots => Box::new(snapshots::Snapshots::new(core, client)),
    }
}

/// A request of these words.
fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A request of the words of a line.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The number in a reply.
pub(crate) fn number(reply: &Frame) -> Option<i64> {
    std::str::from_utf8(&reply.text).ok()?.parse().ok().filter(|_| reply.kind != b'-')
}

/// Whether the reply is null.
fn is_missing(reply: &Frame) -> bool {
    reply.missing || reply.kind == b'_'
}

/// The text of a reply.
pub(crate) fn text(reply: &Frame) -> String {
    String::from_utf8_lossy(&reply.text).into_owned()
}

/// How long a client waits for a reply.
const REPLY_TIMEOUT_US: i64 = 4_000_000;

/// Reports that the reply to the request that was sent at `asked_us` is late, unless a fault has
/// delayed the server.
fn report_late_reply(core: &mut Core, asked_us: i64, request: &str) {
    if core.disturbed_us < asked_us {
        let seconds = REPLY_TIMEOUT_US / 1_000_000;
        core.report("late", format!("no reply to {request} for {seconds} s"));
    }
}
