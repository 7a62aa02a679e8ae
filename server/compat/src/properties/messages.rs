//! Unlock messages: never before the lock is free, and to every waiting client.

use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::cases;
use crate::report::Question;
use crate::time;
use crate::wire::frame::Frame;

const EARLY: &str = "A client that is woken before the lock is free waits again, and no later \
                     message wakes it.";

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "A script's unlock message arrives after the lock is free",
        client: Some("Redisson RLock"),
        question: Question::Missed,
        why: EARLY,
        run: |arena| lock_is_free_at_message(arena, UnlockBy::Script),
    },
    Property {
        name: "A transaction's unlock message arrives after the lock is free",
        client: None,
        question: Question::Missed,
        why: EARLY,
        run: |arena| lock_is_free_at_message(arena, UnlockBy::Transaction),
    },
    Property {
        name: "A client that waits for an unlock message gets the lock",
        client: Some("Redisson RLock"),
        question: Question::Missed,
        why: "A client that misses the message keeps waiting for a free lock.",
        run: all_waiters_get_the_lock,
    },
];

#[derive(Clone, Copy)]
enum UnlockBy {
    Script,
    Transaction,
}

/// The lease: longer than a run.
const LEASE_MS: &str = "3600000";
const LATCH_MS: &str = "1000";
const ROUNDS_MIN: u64 = 20;
/// How long a waiter waits for a message before it checks whether the lock is free.
const LISTEN: Duration = Duration::from_millis(1500);
/// How long to wait for a message that must come.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that a lock is free when its message arrives: one client holds a lock and frees it.
/// Another receives the message and at once reads the lock on a third connection.
fn lock_is_free_at_message(arena: &Arena<'_>, method: UnlockBy) -> Result<(), PropertyError> {
    let rounds = arena.run_clients((arena.connections / 2).max(1), |number, holder| {
        let (lock, channel) = (arena.key(&format!("lock-{number}")), arena.key("channel"));
        let (channel, latch) = (format!("{channel}-{number}"), format!("{lock}:latch"));
        let mut listener = subscribed(arena, &channel)?;
        let mut reader = arena.connect()?;
        let mut rounds = 0_u64;
        while !arena.is_over() {
            take(holder, &lock, "holder")?;
            method.free(holder, [&lock, &channel, &latch])?;
            let Some(message) = listener.read_within(MESSAGE_TIMEOUT)? else {
                return Err(PropertyError::violated("a message", "nothing in time", Vec::new()));
            };
            let held = reader.integer(&["EXISTS", &lock])?;
            if held != 0 {
                let story = vec![
                    "a> takes the lock".to_owned(),
                    "a> frees it and publishes, in one step".to_owned(),
                    format!("b< {}", message.notation()),
                    format!("c> EXISTS lock: {held}"),
                ];
                return Err(PropertyError::violated("the lock is free", "it is still held", story));
            }
            method.read_replies(holder)?;
            reader.call(&["DEL", &latch])?;
            rounds += 1;
        }
        Ok(rounds)
    })?;
    let rounds: u64 = rounds.iter().sum();
    PropertyError::unknown_unless(rounds >= ROUNDS_MIN, || format!("{rounds} messages are too few"))
}

impl UnlockBy {
    /// Frees the lock and publishes, without waiting for the replies.
    fn free(self, holder: &mut ArenaClient, names: [&str; 3]) -> Result<(), PropertyError> {
        let [lock, channel, latch] = names;
        match self {
            UnlockBy::Script => {
                let script = cases::script("redisson/unlock").unwrap_or_default();
                let keys = ["EVAL", script, "3", lock, channel, latch];
                let arguments = ["0", LEASE_MS, "holder", "PUBLISH", LATCH_MS];
                holder.send(&[&keys[..], &arguments].concat())
            }
            UnlockBy::Transaction => {
                holder.send(&["MULTI"])?;
                holder.send(&["DEL", lock])?;
                holder.send(&["PUBLISH", channel, "0"])?;
                holder.send(&["EXEC"])
            }
        }
    }

    /// Reads the replies to `free`.
    fn read_replies(self, holder: &mut ArenaClient) -> Result<(), PropertyError> {
        let count = if matches!(self, UnlockBy::Script) { 1 } else { 4 };
        for _ in 0..count {
            let reply = holder.read_within(MESSAGE_TIMEOUT)?;
            if reply.is_none_or(|reply| reply.kind == b'-') {
                return Err(PropertyError::violated("the lock is freed", "an error", Vec::new()));
            }
        }
        Ok(())
    }
}

/// Waits as Redisson does: try, subscribe, try again, sleep until a message comes.
fn all_waiters_get_the_lock(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let (lock, channel) = (arena.key("lock"), arena.key("channel"));
    let entered = arena.run_clients(arena.connections, |number, client| {
        let owner = format!("c{number}");
        let latch = format!("{lock}:latch:{number}");
        let mut listener = subscribed(arena, &channel)?;
        let mut entered = 0_u64;
        while !arena.is_over() {
            while !try_take(client, &lock, &owner)? {
                wait_for_message(client, &mut listener, &lock)?;
            }
            entered += 1;
            let script = cases::script("redisson/unlock").unwrap_or_default();
            let keys = ["EVAL", script, "3", &lock, &channel, &latch];
            let arguments = ["0", LEASE_MS, &owner, "PUBLISH", LATCH_MS];
            let freed = client.call(&[&keys[..], &arguments].concat())?;
            if freed.text != b"1" {
                let came = freed.notation();
                return Err(PropertyError::violated(
                    "the holder frees the lock",
                    &came,
                    Vec::new(),
                ));
            }
            client.call(&["DEL", &latch])?;
        }
        Ok(entered)
    })?;
    let entered: u64 = entered.iter().sum();
    PropertyError::unknown_unless(entered >= ROUNDS_MIN, || {
        format!("the lock was taken {entered} times only")
    })
}

/// Sleeps until a message comes. If none comes, the lock must not be free: it was held after the
/// subscription, so its holder published before freeing it, and that message precedes the PONG.
fn wait_for_message(
    client: &mut ArenaClient,
    listener: &mut ArenaClient,
    lock: &str,
) -> Result<(), PropertyError> {
    let begun_us = time::now_us();
    loop {
        if listener.read_within(LISTEN)?.is_some() {
            // Earlier messages need not be waited for.
            while listener.read_within(Duration::ZERO)?.is_some() {}
            return Ok(());
        }
        let is_free = client.integer(&["EXISTS", lock])? == 0;
        listener.send(&["PING"])?;
        let Some(answer) = listener.read_within(MESSAGE_TIMEOUT)? else {
            return Err(PropertyError::violated(
                "an answer to PING",
                "nothing in time",
                Vec::new(),
            ));
        };
        if is_message(&answer) {
            // The PONG is still to come; it is then treated as a message.
            return Ok(());
        }
        if is_free {
            let waited_ms = (time::now_us() - begun_us) / 1000;
            let story = vec![
                "a> SUBSCRIBE channel".to_owned(),
                "a> the lock is held by another: it waits for a message".to_owned(),
                format!("a waits for {waited_ms} ms: no message"),
                "a> EXISTS lock: 0".to_owned(),
                format!("a> PING: {}", answer.notation()),
            ];
            let came = "the lock was freed, and the message did not come";
            return Err(PropertyError::violated("a message when the lock is freed", came, story));
        }
    }
}

fn is_message(reply: &Frame) -> bool {
    reply.items.first().is_some_and(|word| word.text == b"message")
}

fn subscribed(arena: &Arena<'_>, channel: &str) -> Result<ArenaClient, PropertyError> {
    let mut listener = arena.connect()?;
    listener.call(&["SUBSCRIBE", channel])?;
    Ok(listener)
}

fn try_take(client: &mut ArenaClient, lock: &str, owner: &str) -> Result<bool, PropertyError> {
    let script = cases::script("redisson/lock").unwrap_or_default();
    let refused = client.text(&["EVAL", script, "1", lock, LEASE_MS, owner])?;
    Ok(refused.is_none())
}

fn take(client: &mut ArenaClient, lock: &str, owner: &str) -> Result<(), PropertyError> {
    match try_take(client, lock, owner)? {
        true => Ok(()),
        false => {
            Err(PropertyError::violated("a free lock is granted", "it is refused", Vec::new()))
        }
    }
}
