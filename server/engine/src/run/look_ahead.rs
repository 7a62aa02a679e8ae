//! Prefetches the memory for a connection's next requests, for all of them at once. With many keys,
//! none is in a cache, and a request would wait for its key's slot, then for its entry, then for
//! its bytes; sixteen requests can wait together.
//!
//! This is only a hint: it changes nothing, and no result depends on it.

use lockwheel_resp::peek::{Head, peek};

use crate::Engine;
use crate::command::FindKeys;
use crate::limits;
use crate::sessions::ClientId;
use crate::store::records::LookAhead;

/// Fewest keys for which the look-ahead is of use: fewer fit in the caches.
const KEYS_MIN: usize = 2_000;

impl Engine {
    /// Prefetches for the requests that a client has sent and that have not been run.
    pub fn look_ahead(&mut self, client: ClientId, unread: &[u8]) {
        let number = self.sessions.get(client).map_or(0, |state| state.database);
        if self.writer.keyspace().database(number).len() >= KEYS_MIN {
            let requests = peek(unread).take(limits::LOOK_AHEAD_REQUESTS);
            let keys: LookAhead<&[u8]> = requests.filter_map(|head| self.first_key(head)).collect();
            self.writer.look_ahead(number, &keys);
        }
    }

    /// The first key of a request.
    fn first_key<'a>(&self, head: Head<'a>) -> Option<&'a [u8]> {
        let command = self.commands.entry(self.commands.find(head[0])?).command;
        let keys = command.keys.first()?;
        let at = match keys.find {
            FindKeys::Range { .. } => keys.begin,
            FindKeys::Count => keys.begin + 1,
            FindKeys::Store(_) | FindKeys::Unknown | FindKeys::HalfAfter(..) => return None,
        };
        head.get(at).copied().filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_resp::encode_request;

    use super::*;
    use crate::settings::Settings;
    use crate::testing::{Stage, words};

    fn encoded(requests: &[&str]) -> Vec<u8> {
        let mut bytes = bytes::BytesMut::new();
        for request in requests {
            encode_request(&words(request), &mut bytes);
        }
        bytes.to_vec()
    }

    #[test]
    fn first_key_of_a_request_is_found() {
        let stage = Stage::new(Settings::default());
        for (request, key) in [
            ("SET k v PX 1", Some("k")),
            ("del a b c", Some("a")),
            ("EVALSHA sha 2 lock channel x", Some("lock")),
            ("EVAL script 0", None),
            ("PING", None),
            ("PING k", None),
            ("NOTHING k", None),
            ("GET", None),
            ("XREAD STREAMS s 0", None),
        ] {
            let bytes = encoded(&[request]);
            let head = peek(&bytes).next().expect("a request");
            assert_eq!(stage.engine.first_key(head), key.map(str::as_bytes), "{request}");
        }
    }

    #[test]
    fn look_ahead_changes_no_reply() {
        let mut stage = Stage::new(Settings::default());
        let client = stage.client("a");
        for key in 0..2 * KEYS_MIN {
            let key = if key % 50 == 0 { "k".repeat(300 + key) } else { format!("k{key}") };
            stage.check(&format!("SET {key} {key} PX 10"));
        }
        let requests =
            ["GET k1", "GET k2", "GET none", "LPUSH k3 v", "DEL k1", "GET k1", "HGET k4 f"];
        let unread = encoded(&requests);
        for end in 0..=unread.len() {
            stage.engine.look_ahead(client, &unread[..end]);
        }
        stage.check("GET k1 => \"k1\"; GET none => nil; LPUSH k3 v => !WRONGTYPE ...");
        stage.check("DEL k1 => 1");
        stage.engine.look_ahead(client, &unread);
        stage.check("GET k1 => nil; DEL k2; SET k2 v; +10ms; DBSIZE => 1");
        stage.engine.look_ahead(client, &unread);
        stage.check("GET k2 => \"v\"; GET k5 => nil");
    }
}
