//! Output of the engine on its way to the clients.

use tracing::{Level, debug, info, warn};

use super::core::Host;
use crate::limits;
use crate::net::outbox::LimitCheck;
use crate::net::registry::Receiver;
use crate::net::turn::{self, Pending};
#[cfg(feature = "defects")]
use lockwheel_defects::Defect;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::{ClientId, Close};
use lockwheel_engine::settings::OutputBufferLimit;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Delivery, Engine};

impl Host {
    /// Does the work that is due at `now`, or a part of it.
    pub(crate) fn tick(&self, engine: &mut Engine, now: Time) {
        engine.tick(now, limits::EXPIRE_KEYS_BETWEEN_CLOCK_READS);
        engine.serve_waiters(now, |waiter| self.peer_has_closed(waiter));
    }

    /// Moves the engine's deliveries to the outboxes and its log lines to the log. Returns the
    /// position that all output of the engine since the last call depends on.
    ///
    /// Disconnects clients beyond `maxmemory-clients`: this is called wherever the memory of
    /// clients may have grown.
    pub(crate) fn deliver_output(&self, engine: &mut Engine) -> Position {
        let dependency = engine.take_dependency();
        self.deliver_all(engine, dependency, |_| {});
        if engine.has_clients_to_evict() {
            for (client, bytes) in engine.evict_clients() {
                warn!(client = client.serial, bytes, "closing a client: maxmemory-clients");
            }
            self.deliver_all(engine, dependency, |_| {});
        }
        for (level, message) in engine.take_script_messages() {
            log_script(level, &message);
        }
        dependency
    }

    /// Moves the engine's deliveries, which depend on `position`, to the outboxes. Calls `inspect`
    /// with each of them first.
    pub(super) fn deliver_all(
        &self,
        engine: &mut Engine,
        position: Position,
        mut inspect: impl FnMut(&Delivery),
    ) {
        if !engine.has_deliveries() {
            return;
        }
        let mut checks = Vec::new();
        engine.hand_out(|engine, delivery| {
            inspect(delivery);
            let client = delivery.client;
            checks.extend(self.deliver(engine, delivery, position).map(|next| (client, next)));
        });
        for (client, next) in checks {
            engine.check_output_at(client, next);
        }
    }

    /// Moves one delivery to its outbox. Returns when to check the client's output limit again.
    pub(super) fn deliver(
        &self,
        engine: &Engine,
        delivery: &mut Delivery,
        position: Position,
    ) -> Option<Millis> {
        let (client, close) = (delivery.client, delivery.close);
        let pending = if delivery.resume { Pending::Reply } else { Pending::Messages };
        let receiver = self.registry.get(client)?;
        let (outbox, limit) = (receiver.outbox(), output_limit(engine, client));
        let now = || self.now().now;
        #[cfg(feature = "defects")]
        let position = if is_not_gated(delivery) { 0 } else { position };
        let mut check = outbox.put(delivery, position, limit, now);
        if let (LimitCheck::Overrun(_), Receiver::Socket(connection)) = (check, &receiver) {
            // Part of the output may only wait for the end of the turn.
            connection.send_pending();
            check = outbox.check_limit(limit, now);
        }
        if let LimitCheck::Overrun(bytes) = check {
            outbox.disconnect();
            warn_overrun(client, bytes);
        }
        let is_over = matches!(check, LimitCheck::Overrun(_));
        match receiver {
            // Closed before the client that requested it gets its reply.
            Receiver::Socket(connection) if close == Some(Close::Now) => connection.close_now(),
            Receiver::Socket(connection) if close.is_none() && !is_over => {
                turn::enqueue(connection, pending);
            }
            Receiver::Socket(connection) => connection.outbox.wake(),
            Receiver::InProcess(outbox) => outbox.wake(),
        }
        match check {
            LimitCheck::OverSoft(next) => next,
            _ => None,
        }
    }
}

/// Whether a defect that is on lets this delivery pass the commit gate.
#[cfg(feature = "defects")]
fn is_not_gated(delivery: &Delivery) -> bool {
    let contains = |text: &[u8]| delivery.bytes.windows(text.len()).any(|bytes| bytes == text);
    [
        (Defect::MessagesNotGated, &b"\nmessage\r"[..]),
        (Defect::KeyspaceEventsNotGated, b"__keyevent"),
        (Defect::InvalidationsNotGated, b"\ninvalidate\r"),
    ]
    .iter()
    .any(|&(defect, text)| lockwheel_defects::is_on(defect) && contains(text))
}

/// The output buffer limit of a client, by its class.
pub(crate) fn output_limit(engine: &Engine, client: ClientId) -> OutputBufferLimit {
    let limits = &engine.settings().client_output_buffer_limits;
    match engine.session(client) {
        Some(state) if !state.identity.is_authenticated() => UNAUTHENTICATED_LIMIT,
        Some(state) if state.is_subscriber() => limits.pubsub,
        _ => limits.normal,
    }
}

/// The output buffer limit of clients that are not authenticated.
const UNAUTHENTICATED_LIMIT: OutputBufferLimit = OutputBufferLimit {
    hard_bytes: limits::UNAUTHENTICATED_OUTBOX_BYTES_MAX as u64,
    soft_bytes: 0,
    soft_seconds: 0,
};

/// Logs an event of a client with its line in `CLIENT LIST`, if events of clients are logged.
pub(crate) fn log_client(engine: &Engine, client: ClientId, time: Time, event: &str) {
    if tracing::enabled!(Level::DEBUG) {
        let line = engine.client_line(client, time);
        debug!("{event} {}", line.unwrap_or_else(|| format!("id={}", client.serial)));
    }
}

/// Logs that a client is closed because it does not read.
pub(crate) fn warn_overrun(client: ClientId, bytes: usize) {
    warn!(client = client.serial, bytes, "closing a client that overran its output buffer limit");
}

fn log_script(level: lockwheel_engine::run::script::LogLevel, message: &str) {
    use lockwheel_engine::run::script::LogLevel;
    match level {
        LogLevel::Debug => tracing::trace!(target: "lockwheel::script", "{message}"),
        LogLevel::Verbose => tracing::debug!(target: "lockwheel::script", "{message}"),
        LogLevel::Notice => info!(target: "lockwheel::script", "{message}"),
        LogLevel::Warning => warn!(target: "lockwheel::script", "{message}"),
    }
}
