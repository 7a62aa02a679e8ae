//! Clients that wait: what for, and what they are told when their time is up.
//!
//! A waiter is named by its [`ClientId`], never referred to: it may go away at any moment. While a
//! client waits, none of its further requests is run.

use leasehold_resp::Reply;

use crate::engine::client::{ClientId, ReplyMode};
use crate::engine::time::Millis;
use crate::engine::wheel::TimerId;
use crate::engine::{Engine, Timer};

/// A client's wait.
#[derive(Debug)]
pub struct Blocked {
    /// What it is told when the time is up or `CLIENT UNBLOCK` says so.
    pub on_timeout: Reply,
    /// Whether `CLIENT UNBLOCK` may end it: not if the client was stopped by `CLIENT PAUSE`.
    pub unblockable: bool,
    timer: Option<TimerId>,
}

impl Engine {
    /// Makes a client wait, until `deadline` if there is one.
    pub fn block(&mut self, client: ClientId, on_timeout: Reply, deadline: Option<Millis>) {
        let timer = deadline.map(|deadline| self.wheel.insert(deadline, Timer::Blocked(client)));
        if let Some(state) = self.clients.get_mut(client) {
            state.blocked = Some(Blocked { on_timeout, unblockable: true, timer });
        }
    }

    /// Makes a client wait for the end of a pause; its request is run again then, in the reply mode
    /// it had before.
    pub(super) fn block_until_unpaused(&mut self, client: ClientId, reply_mode: ReplyMode) {
        if let Some(state) = self.clients.get_mut(client) {
            state.reply_mode = reply_mode;
            state.blocked =
                Some(Blocked { on_timeout: Reply::NOTHING, unblockable: false, timer: None });
            self.paused_clients.push(client);
        }
    }

    /// Ends a client's wait with `reply`; false if it was not waiting.
    pub fn unblock(&mut self, client: ClientId, reply: &Reply) -> bool {
        if !self.stop_waiting(client) {
            return false;
        }
        if self.clients.get(client).is_some_and(|state| !state.is_muted()) {
            self.push(client, reply);
        }
        self.resume(client);
        true
    }

    /// Ends a client's wait as if its time were up.
    pub fn end_wait(&mut self, client: ClientId) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        let reply = std::mem::replace(&mut blocked.on_timeout, Reply::NOTHING);
        self.unblock(client, &reply);
    }

    /// The timer of a waiting client has fired, which therefore has none now.
    pub(super) fn wait_timed_out(&mut self, client: ClientId) {
        let Some(state) = self.clients.get_mut(client) else { return };
        if let Some(blocked) = state.blocked.as_mut() {
            blocked.timer = None;
            self.end_wait(client);
        }
    }

    /// Forgets that a client waits, without telling it.
    pub(super) fn stop_waiting(&mut self, client: ClientId) -> bool {
        let Some(state) = self.clients.get_mut(client) else { return false };
        let Some(blocked) = state.blocked.take() else { return false };
        if let Some(timer) = blocked.timer {
            self.wheel.cancel(timer);
        }
        true
    }
}
