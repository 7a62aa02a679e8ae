//! Clients that come and go, and their output.

use bytes::{Bytes, BytesMut};
use lockwheel_resp::Protocol;

use crate::engine::Engine;
use crate::limits;
use crate::sessions::deliveries::Delivery;
use crate::sessions::{ClientId, Close, Origin, ReplyMode, Session};
use crate::settings::MemoryShare;
use crate::timing::time::{Millis, Time};

impl Engine {
    /// Adds a client that has connected. A client in this process needs no password and uses RESP3.
    pub fn connect(&mut self, origin: Origin, time: Time) -> ClientId {
        self.stats.connections_received += u64::from(!origin.is_monitoring);
        let is_in_process = origin.in_process;
        let identity = self.access.first_identity(is_in_process);
        let client = self.sessions.clients.add(origin, time.now, identity);
        if self.instruments.is_some() && !is_in_process {
            self.note_connection(client, time);
        }
        client
    }

    /// Ends the transaction, watches, subscriptions and modes of a client, and selects the first
    /// database and RESP2.
    pub(crate) fn reset_client(&mut self, client: ClientId) {
        self.unwatch(client);
        self.sessions.unsubscribe_all(client);
        self.stop_tracking(client);
        self.sessions.stop_monitoring(client);
        self.update_consumers();
        self.sessions.take_transaction(client);
        self.sessions.clients.set_text(client, |session| &mut session.name, Bytes::new());
        let Some(session) = self.sessions.get_mut(client) else { return };
        session.identity = self.access.first_identity(session.origin.in_process);
        session.database = 0;
        session.protocol = Protocol::Resp2;
        // `CLIENT REPLY SKIP` before this command still skips its reply.
        let ReplyMode { skip, .. } = session.reply_mode;
        session.reply_mode = ReplyMode { skip, ..ReplyMode::default() };
        session.read_only = false;
        session.no_evict = false;
        session.no_touch = false;
    }

    /// Removes a client that has disconnected.
    pub fn disconnect(&mut self, client: ClientId) {
        if self.instruments.is_some() {
            self.note_disconnection(client);
        }
        self.sessions.remove(client);
        self.update_consumers();
    }

    /// Disconnects and removes a client. Must not be called for the client of the running command.
    pub fn kill(&mut self, client: ClientId) {
        self.disconnect(client);
        self.sessions.killed.push(client);
    }

    /// Disconnects a client: that of the running command after its reply.
    pub(crate) fn close_client(&mut self, client: ClientId, caller: Option<ClientId>) {
        if Some(client) != caller {
            self.kill(client);
        } else if let Some(session) = self.sessions.get_mut(client) {
            session.close = Some(Close::AfterReplies);
        }
    }

    /// Takes the output for clients since the last call.
    pub fn deliveries(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        self.hand_out(|_, delivery| {
            let (client, bytes) = (delivery.client, std::mem::take(&mut delivery.bytes));
            let (resume, close) = (delivery.resume, delivery.close);
            deliveries.push(Delivery { client, bytes, resume, close });
        });
        deliveries
    }

    /// As [`Engine::deliveries`], one by one. The receiver may swap the bytes for an empty buffer,
    /// which is then used for the client's next output.
    pub fn hand_out(&mut self, mut deliver: impl FnMut(&Engine, &mut Delivery)) {
        let mut queued = std::mem::take(&mut self.sessions.deliveries);
        for client in queued.drain(..) {
            let Some(mut delivery) = self.sessions.delivery(client) else { continue };
            deliver(self, &mut delivery);
            if let Some(state) = self.sessions.get_mut(client)
                && delivery.bytes.capacity() <= limits::IDLE_BUFFER_BYTES
            {
                delivery.bytes.clear();
                state.pending = delivery.bytes;
            }
        }
        self.sessions.deliveries = queued;
        for client in std::mem::take(&mut self.sessions.killed) {
            let (bytes, close) = (BytesMut::new(), Some(Close::Now));
            deliver(self, &mut Delivery { client, bytes, resume: false, close });
        }
    }

    /// Whether [`Engine::deliveries`] would return anything.
    pub fn has_deliveries(&self) -> bool {
        self.sessions.has_deliveries()
    }

    /// Asks the caller to check the client's output limit at `moment`: the client gets an empty
    /// [`Delivery`] then.
    pub fn check_output_at(&mut self, client: ClientId, moment: Millis) {
        self.sessions.check_output_at(client, moment);
    }

    /// Whether clients use more memory than `maxmemory-clients` allows. Always false while a script
    /// runs, since the script's client must stay connected.
    #[inline]
    pub fn has_clients_to_evict(&self) -> bool {
        self.settings.maxmemory_clients != MemoryShare::NONE
            && self.script.is_none()
            && self.is_over_client_limit()
    }

    /// Disconnects the clients that use most memory until the others use no more than
    /// `maxmemory-clients`; returns them with their memory in bytes. Must not be called while a
    /// command runs.
    #[cold]
    pub fn evict_clients(&mut self) -> Vec<(ClientId, usize)> {
        let mut evicted = Vec::new();
        let evictable = |client: &&Session| !client.no_evict && !client.origin.in_process;
        let sizes =
            self.sessions.clients.iter().filter(evictable).map(|c| (c.memory_bytes(), c.id));
        let mut sizes: Vec<(usize, ClientId)> = sizes.collect();
        sizes.sort_unstable();
        while let Some((bytes, client)) = sizes.pop().filter(|_| self.is_over_client_limit()) {
            self.kill(client);
            self.stats.evicted_clients += 1;
            evicted.push((client, bytes));
        }
        evicted
    }

    pub(crate) fn is_over_client_limit(&self) -> bool {
        let limit = self.settings.maxmemory_clients.bytes_of(self.settings.maxmemory_bytes);
        let limit = limit.map(|bytes| bytes.max(limits::CLIENTS_MEMORY_BYTES_MIN));
        limit.is_some_and(|limit| self.sessions.clients.memory_bytes() as u64 >= limit)
    }

    /// As [`Sessions::start_pause`].
    pub(crate) fn start_pause(&mut self, until: Millis, writes_only: bool) {
        self.sessions.start_pause(until, writes_only);
        self.update_conditions();
    }

    /// As [`Sessions::unpause`].
    pub(crate) fn unpause(&mut self) {
        self.sessions.unpause(self.writer.keyspace());
        self.update_conditions();
        self.update_consumers();
    }
}
