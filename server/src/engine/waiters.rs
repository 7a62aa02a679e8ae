//! Clients that wait: what for, and what they are told when their time is up.
//!
//! A waiter is named by its [`ClientId`], never referred to: it may go away at any moment. While a
//! client waits, none of its further requests is run.

use leasehold_resp::Reply;

use crate::engine::client::ClientId;
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

    /// Makes a client wait for the end of a pause; its request is run again then.
    pub(super) fn block_until_unpaused(&mut self, client: ClientId) {
        if let Some(state) = self.clients.get_mut(client) {
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
        self.push(client, reply);
        self.resume(client);
        true
    }

    /// The time of a waiting client is up.
    pub(super) fn wait_timed_out(&mut self, client: ClientId) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let Some(blocked) = state.blocked.as_mut() else { return };
        blocked.timer = None;
        let reply = std::mem::replace(&mut blocked.on_timeout, Reply::NOTHING);
        self.unblock(client, &reply);
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
