//! The file descriptors of the process: how many each kind of connection may use, so that the files
//! of the log can always be opened.

use lockwheel_engine::settings::{Settings, directive};

use crate::limits;

/// Divides `limit` file descriptors: sets how many clients and unfinished handshakes are possible.
/// `others` is for connections that the program serves beside the server.
#[doc(hidden)]
pub fn share_descriptors(settings: &mut Settings, limit: u64, others: u64) {
    let threads = u64::from(settings.get(directive::IO_THREADS));
    let mut kept = limits::DESCRIPTORS_RESERVED + others;
    kept += threads.saturating_sub(1) * limits::DESCRIPTORS_PER_THREAD;
    if settings.has_log() || settings.get(directive::RESTART_GUARD) {
        kept += limits::LOG_DESCRIPTORS;
    }
    #[cfg(feature = "replication")]
    if settings.is_node() {
        kept += (limits::RAFT_UNIDENTIFIED_MAX + limits::RAFT_CONNECTIONS_MAX) as u64;
        kept += limits::LOG_DESCRIPTORS;
    }
    #[cfg(feature = "tls")]
    if settings.get(directive::TLS_PORT) != 0 {
        let part = usize::try_from(limit / limits::TLS_HANDSHAKES_PART).unwrap_or(usize::MAX);
        let handshakes = part.clamp(1, limits::TLS_HANDSHAKES_MAX);
        settings.tls_handshakes_max = Some(handshakes);
        kept += handshakes as u64;
    }
    let possible = u32::try_from(limit.saturating_sub(kept)).unwrap_or(u32::MAX).max(1);
    settings.clients_possible = possible;
    settings.maxclients = settings.maxclients.min(possible);
}
