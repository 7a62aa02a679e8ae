//! The kinds of locks by the library that makes them, and the names that go with a lock.

use super::Shape;
use crate::Engine;
use crate::store::lock::LockMode;
use crate::store::records::Record;
use crate::store::value::ValueRef;

/// Channels on which Redisson publishes that a lock was released, in front of the name.
const CHANNELS: &[&[u8]] = &[b"redisson_lock__channel:", b"redisson_rwlock:", b"redisson_sc:"];

/// The message on these channels after a release.
pub(crate) const RELEASE_MESSAGE: &[u8] = b"0";

/// The queue of a fair lock of Redisson, in front of the name.
const FAIR_QUEUE: &[u8] = b"redisson_lock_queue:";

/// The name of a key with a prefix, as Redisson writes it: in braces unless it contains one.
fn with_prefix(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let (open, close): (&[u8], &[u8]) = if key.contains(&b'{') { (b"", b"") } else { (b"{", b"}") };
    [prefix, open, key, close].concat()
}

/// The key of the lock whose release is published on this channel, if it is such a channel.
pub(crate) fn key_of_channel(channel: &[u8]) -> Option<&[u8]> {
    if !channel.starts_with(b"redisson_") {
        return None;
    }
    let name = CHANNELS.iter().find_map(|prefix| channel.strip_prefix(*prefix))?;
    // The channel of one waiter of a fair lock has a colon and its owner after the name. A name
    // with braces of its own has other text there.
    let bare = name.strip_prefix(b"{").and_then(|name| {
        let end = name.iter().position(|&byte| byte == b'}')?;
        matches!(name[end + 1..].first(), None | Some(b':')).then_some(&name[..end])
    });
    Some(bare.unwrap_or(name))
}

/// The channels on which the release of the lock at `key` may be published.
pub(crate) fn channels(key: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    CHANNELS.iter().map(move |prefix| with_prefix(prefix, key))
}

/// The channel of one waiter of a fair lock.
pub(crate) fn channel_of_waiter(key: &[u8], owner: &[u8]) -> Vec<u8> {
    [&with_prefix(CHANNELS[0], key), &b":"[..], owner].concat()
}

/// The owners in the queue of a fair lock, in order.
pub(crate) fn queued_owners(engine: &Engine, database: usize, key: &[u8]) -> Vec<Vec<u8>> {
    let keyspace = engine.writer.keyspace();
    let Some(slot) = keyspace.find(database, &with_prefix(FAIR_QUEUE, key)) else {
        return Vec::new();
    };
    match keyspace.database(database).record(slot).value() {
        ValueRef::List(list) => list.iter().map(|owner| owner.to_vec()).collect(),
        _ => Vec::new(),
    }
}

/// A key at which clients block until a lock is released: that of python-redis-lock.
pub(crate) fn signal_key(key: &[u8]) -> Option<Vec<u8>> {
    Some([b"lock-signal:", key.strip_prefix(b"lock:")?].concat())
}

/// The kind of a lock: the library and its recipe where they are known, else its shape.
pub(crate) fn kind(
    engine: &Engine,
    database: usize,
    lock: Record<'_>,
    shape: Shape,
) -> &'static str {
    match lock.value() {
        ValueRef::Hash(fields) => {
            let mode = fields.iter().find(|(field, _)| *field == b"mode").map(|(_, mode)| mode);
            match mode {
                Some(b"read") => return "redisson-read-lock",
                Some(b"write") => return "redisson-write-lock",
                _ => {}
            }
            if !fields.iter().any(|(owner, _)| is_owner_of_redisson(owner)) {
                return "owners";
            }
            let queue = with_prefix(FAIR_QUEUE, lock.key());
            if engine.writer.keyspace().find(database, &queue).is_some() {
                "redisson-fair-lock"
            } else {
                "redisson-lock"
            }
        }
        ValueRef::String(text) if text.bytes().starts_with(b"ADDED:") => "shedlock",
        ValueRef::Lock(lock) => match lock.mode() {
            Some(LockMode::Shared) => "native-shared-lock",
            Some(LockMode::Permits { .. }) => "native-semaphore",
            Some(LockMode::Exclusive) | None => "native-lock",
        },
        _ => match shape {
            Shape::Token => "token",
            Shape::Owners => "owners",
            Shape::Semaphore => "semaphore",
            Shape::Native => "native-lock",
        },
    }
}

/// Whether a field is the id of an instance of Redisson, a colon and the number of a thread.
fn is_owner_of_redisson(owner: &[u8]) -> bool {
    const UUID: usize = 36;
    owner.len() > UUID + 1
        && owner[UUID] == b':'
        && [8, 13, 18, 23].iter().all(|&at| owner[at] == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_leads_to_the_key() {
        for (channel, key) in [
            (&b"redisson_lock__channel:{order}"[..], Some(&b"order"[..])),
            (b"redisson_lock__channel:{order}:uuid:1", Some(b"order")),
            (b"redisson_rwlock:{order}", Some(b"order")),
            (b"redisson_rwlock:{a}b", Some(b"{a}b")),
            (b"redisson_other:{order}", None),
            (b"news", None),
        ] {
            assert_eq!(key_of_channel(channel), key, "{}", String::from_utf8_lossy(channel));
        }
        assert!(channels(b"order").any(|channel| channel == b"redisson_lock__channel:{order}"));
        assert!(channels(b"{a}b").any(|channel| channel == b"redisson_rwlock:{a}b"));
    }
}
