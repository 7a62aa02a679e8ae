//! What a host asks its replicated log before and after each use of the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Host;
use crate::net::registry::Receiver;
use crate::replication::RaftLog;
use lockwheel_defects::defect;
use lockwheel_engine::Engine;

impl Host {
    /// Lets the units of the engine, which follows, go to `log` when it leads.
    pub(crate) fn start_replicated_log(self: &Arc<Self>, log: &Arc<RaftLog>) {
        // Only the start of a server calls this.
        let _ = self.log.set(Arc::<RaftLog>::clone(log));
        let _ = self.raft_log.set(Arc::clone(log));
    }

    /// Checks whether this server still leads for certain. Otherwise it serves no commands, since
    /// another leader may have changed the keys that they read. They are held meanwhile.
    pub(super) fn check_leadership(&self, engine: &mut Engine) {
        if let Some(log) = self.raft_log.get() {
            engine.set_serves(log.leads() || defect!(LeadershipNotChecked));
            // Those that it could not serve while it did not lead for certain.
            if engine.has_waiters_to_serve() {
                engine.serve_waiters(self.now(), |waiter| self.peer_has_closed(waiter));
            }
        }
        self.note_nodes(engine);
    }

    /// Passes on that a request is held.
    pub(super) fn note_held(&self, engine: &Engine) {
        if let Some(log) = self.raft_log.get()
            && !defect!(HeldRequestsForgotten)
        {
            log.note_held(engine.last_held());
        }
    }

    /// Passes changes of the nodes to the engine.
    pub(super) fn note_nodes(&self, engine: &mut Engine) {
        if let Some(nodes) = self.raft_log.get().and_then(|log| log.take_nodes()) {
            engine.set_nodes(nodes, self.now());
        }
    }

    /// Closes all clients, without the output that is not released; except those that only wait for
    /// the event of the next leader and have no such output, and those that monitor the server:
    /// their output is at most that a held request may run.
    pub(crate) fn close_clients(&self, engine: &Engine) {
        self.leaderships_ended.fetch_add(1, Ordering::Release);
        for (client, receiver) in self.registry.all_with_clients() {
            let has_output = receiver.has_output() && !engine.is_monitoring(client);
            if engine.outlives_leader(client) && !has_output {
                // Its call ends: see `Client::is_released`.
                if let Receiver::InProcess(outbox) = receiver {
                    outbox.wake();
                }
                continue;
            }
            match receiver {
                Receiver::Socket(connection) => connection.close_now(),
                Receiver::InProcess(outbox) => {
                    outbox.disconnect();
                    outbox.wake();
                }
            }
        }
    }
}
