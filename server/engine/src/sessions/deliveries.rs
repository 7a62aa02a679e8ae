//! Output for clients that does not belong to the reply to their current request, and changes of
//! their state. Both wait here until the connections get them.

use bytes::BytesMut;
use lockwheel_resp::Reply;
use lockwheel_resp::encode::encode;

use crate::sessions::{ClientId, Close, Sessions, Timer};
use crate::timing::time::Millis;

/// Output and state changes for one client that its connection has to apply.
#[derive(Debug)]
pub struct Delivery {
    /// The client.
    pub client: ClientId,
    /// Bytes to send after all earlier output.
    pub bytes: BytesMut,
    /// Whether the client's wait is over, so that its next request may run.
    pub resume: bool,
    /// Whether and how to disconnect the client.
    pub close: Option<Close>,
}

impl Sessions {
    /// Appends the messages for a client since the last call.
    pub(crate) fn take_messages(&mut self, client: ClientId, out: &mut BytesMut) {
        if let Some(state) = self.get_mut(client) {
            out.extend_from_slice(&state.pending);
            state.clear_pending();
        }
    }

    /// Whether a connection has to be informed.
    pub(crate) fn has_deliveries(&self) -> bool {
        !self.deliveries.is_empty() || !self.killed.is_empty()
    }

    /// Takes the output for a client from the queue, if there still is any.
    pub(crate) fn delivery(&mut self, client: ClientId) -> Option<Delivery> {
        let state = self.get_mut(client)?;
        state.queued = false;
        let checks_output = std::mem::take(&mut state.checks_output);
        let is_empty = state.pending.is_empty() && !state.resume && state.close.is_none();
        if is_empty && !checks_output {
            return None;
        }
        Some(Delivery {
            client,
            bytes: std::mem::take(&mut state.pending),
            resume: std::mem::take(&mut state.resume),
            close: state.close.take(),
        })
    }

    /// Sends a client a message that is not a reply to its current request.
    pub(crate) fn push(&mut self, client: ClientId, reply: &Reply) {
        if let Some(state) = self.get_mut(client) {
            encode(reply, state.protocol, &mut state.pending);
            self.queue_delivery(client);
        }
    }

    /// See [`Engine::check_output_at`](crate::Engine::check_output_at).
    pub(crate) fn check_output_at(&mut self, client: ClientId, moment: Millis) {
        self.timers.insert(moment, Timer::CheckOutput(client.slot));
    }

    /// Gives a client an empty delivery, for which its connection checks its output limit.
    pub(crate) fn request_output_check(&mut self, place: u32) {
        let Some(client) = self.clients.at_place(place) else { return };
        if let Some(state) = self.get_mut(client) {
            state.checks_output = true;
            self.queue_delivery(client);
        }
    }

    /// Lets the next request of a client run.
    pub(crate) fn resume(&mut self, client: ClientId) {
        if let Some(state) = self.get_mut(client) {
            state.resume = true;
            self.queue_delivery(client);
        }
    }

    /// Informs a client's connection of its output or its changed state.
    pub(crate) fn queue_delivery(&mut self, client: ClientId) {
        if let Some(state) = self.get_mut(client)
            && !state.queued
        {
            state.queued = true;
            self.deliveries.push(client);
        }
    }
}
