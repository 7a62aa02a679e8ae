//! Counters that `INFO` shows.

use std::collections::BTreeMap;

use lockwheel_resp::Reply;
use lockwheel_scripting::LogLevel;

use crate::engine::Engine;
use crate::error::Error;
use crate::sessions::ClientId;
use crate::store::counter::increment;

/// Counters that `INFO` shows.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is INFO's field of that name")]
pub struct Stats {
    pub connections_received: u64,
    pub rejected_connections: u64,
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub expired_keys: u64,
    pub total_error_replies: u64,
    /// Error replies by their code.
    pub errors: BTreeMap<String, u64>,
    pub peak_memory_bytes: u64,
    pub evicted_clients: u64,
    /// How late keys were removed after their deadlines, in milliseconds: the sum and the longest.
    pub expired_late_ms: u64,
    pub expired_late_ms_max: u64,
    /// The time in which keys were removed at their deadlines.
    pub expire_ns: u64,
}

/// Number of error codes that are counted separately; further codes count only towards the total. A
/// script can return any number of codes.
const ERROR_CODES_MAX: usize = 128;

impl Engine {
    /// Counts a command that has run.
    pub(crate) fn count_call(&mut self, at: usize, failed: bool) {
        let stats = &mut self.command_stats[at];
        increment(&mut stats.calls);
        if failed {
            increment(&mut stats.failed);
        }
    }

    /// Logs that a client has sent a wrong user or password, without either.
    #[cold]
    pub(crate) fn note_denied_authentication(&mut self, client: ClientId) {
        let address = self.sessions.get(client).map_or("", |session| &session.origin.address);
        let line = format!("Authentication failed for client id={} addr={address}", client.serial);
        self.script_messages.push((LogLevel::Verbose, line));
    }

    /// The reply for an error, which is counted.
    #[cold]
    pub(crate) fn error_reply(&mut self, error: Error) -> Reply {
        let reply = Reply::from(error);
        self.count_error(&reply);
        reply
    }

    /// Counts a reply, if it is an error.
    #[cold]
    pub(crate) fn count_error(&mut self, reply: &Reply) {
        let Reply::Error(line) = reply else { return };
        self.stats.total_error_replies += 1;
        let blank = line.iter().position(|&byte| byte == b' ');
        let code = blank.map_or(&b"ERR"[..], |at| &line[..at]);
        let code = String::from_utf8_lossy(code);
        let errors = &mut self.stats.errors;
        if let Some(count) = errors.get_mut(&*code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.into_owned(), 1);
        }
    }
}
