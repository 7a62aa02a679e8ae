//! Messages that say a lock is free: never before it is, and to everyone who waits.

use std::time::Duration;

use super::super::cases;
use super::super::frame::Frame;
use super::super::time;
use super::{Arena, Client, Property, Trouble};

const EARLY: &str = "A waiter that is woken before the lock is free finds it held, sleeps again, \
                     and nobody wakes it when it is free.";

/// What is tried.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "An unlock message of a script is not received before the lock is free",
        client: Some("Redisson RLock"),
        why: EARLY,
        run: |arena| free_when_told(arena, Means::Script),
    },
    Property {
        name: "An unlock message of a transaction is not received before the lock is free",
        client: None,
        why: EARLY,
        run: |arena| free_when_told(arena, Means::Transaction),
    },
    Property {
        name: "Whoever waits for an unlock message gets the lock in the end",
        client: Some("Redisson RLock"),
        why: "A message that does not reach a waiter leaves it waiting for a lock that is free.",
        run: all_get_in,
    },
];

#[derive(Clone, Copy)]
enum Means {
    Script,
    Transaction,
}

/// Longer than a run.
const LEASE_MS: &str = "3600000";
const LATCH_MS: &str = "1000";
const ROUNDS_MIN: u64 = 20;
/// For how long a waiter listens before it looks whether there is anything to listen for.
const LISTEN: Duration = Duration::from_millis(1500);
/// For how long one that should be told listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// One holds a lock and frees it; another listens, and looks at once on a third connection.
fn free_when_told(arena: &Arena<'_>, means: Means) -> Result<(), Trouble> {
    let rounds = arena.crowd((arena.connections / 2).max(1), |number, holder| {
        let (lock, channel) = (arena.key(&format!("lock-{number}")), arena.key("channel"));
        let (channel, latch) = (format!("{channel}-{number}"), format!("{lock}:latch"));
        let mut listener = subscribed(arena, &channel)?;
        let mut looker = arena.connect()?;
        let mut rounds = 0_u64;
        while !arena.is_over() {
            take(holder, &lock, "holder")?;
            means.free(holder, [&lock, &channel, &latch])?;
            let Some(message) = listener.hear(PATIENCE)? else {
                return Err(Trouble::broken("a message", "nothing in time", Vec::new()));
            };
            let held = looker.integer(&["EXISTS", &lock])?;
            if held != 0 {
                let story = vec![
                    "a> takes the lock".to_owned(),
                    "a> frees it and publishes, in one step".to_owned(),
                    format!("b< {}", message.notation()),
                    format!("c> EXISTS lock: {held}"),
                ];
                return Err(Trouble::broken("the lock is free", "it is still held", story));
            }
            means.freed(holder)?;
            looker.call(&["DEL", &latch])?;
            rounds += 1;
        }
        Ok(rounds)
    })?;
    match rounds.iter().sum::<u64>() {
        rounds if rounds < ROUNDS_MIN => {
            Err(Trouble::unknown(format!("{rounds} messages are too few")))
        }
        _ => Ok(()),
    }
}

impl Means {
    /// Frees the lock and publishes; the replies are not waited for.
    fn free(self, holder: &mut Client, names: [&str; 3]) -> Result<(), Trouble> {
        let [lock, channel, latch] = names;
        match self {
            Means::Script => {
                let script = cases::script("redisson/unlock").unwrap_or_default();
                let keys = ["EVAL", script, "3", lock, channel, latch];
                let arguments = ["0", LEASE_MS, "holder", "PUBLISH", LATCH_MS];
                holder.send(&[&keys[..], &arguments].concat())
            }
            Means::Transaction => {
                holder.send(&["MULTI"])?;
                holder.send(&["DEL", lock])?;
                holder.send(&["PUBLISH", channel, "0"])?;
                holder.send(&["EXEC"])
            }
        }
    }

    /// Reads what was not waited for.
    fn freed(self, holder: &mut Client) -> Result<(), Trouble> {
        let count = if matches!(self, Means::Script) { 1 } else { 4 };
        for _ in 0..count {
            let reply = holder.hear(PATIENCE)?;
            if reply.is_none_or(|reply| reply.kind == b'-') {
                return Err(Trouble::broken("the lock is freed", "an error", Vec::new()));
            }
        }
        Ok(())
    }
}

/// Redisson's way to wait: try, subscribe, try again, sleep until a message comes.
fn all_get_in(arena: &Arena<'_>) -> Result<(), Trouble> {
    let (lock, channel) = (arena.key("lock"), arena.key("channel"));
    let entered = arena.crowd(arena.connections, |number, client| {
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
                return Err(Trouble::broken("the holder frees the lock", &came, Vec::new()));
            }
            client.call(&["DEL", &latch])?;
        }
        Ok(entered)
    })?;
    match entered.iter().sum::<u64>() {
        entered if entered < ROUNDS_MIN => {
            Err(Trouble::unknown(format!("the lock was taken {entered} times only")))
        }
        _ => Ok(()),
    }
}

/// Sleeps until a message comes. If none does, the lock must not be free: it was held after the
/// subscription, so whoever freed it sent a message before, and that comes before the PONG.
fn wait_for_message(client: &mut Client, listener: &mut Client, lock: &str) -> Result<(), Trouble> {
    let begun_us = time::now_us();
    loop {
        if listener.hear(LISTEN)?.is_some() {
            // What was sent before need not be waited for.
            while listener.hear(Duration::ZERO)?.is_some() {}
            return Ok(());
        }
        let is_free = client.integer(&["EXISTS", lock])? == 0;
        listener.send(&["PING"])?;
        let Some(answer) = listener.hear(PATIENCE)? else {
            return Err(Trouble::broken("an answer to PING", "nothing in time", Vec::new()));
        };
        if is_message(&answer) {
            // The PONG is still to come; it is heard as if it were a message.
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
            return Err(Trouble::broken("a message when the lock is freed", came, story));
        }
    }
}

fn is_message(reply: &Frame) -> bool {
    reply.items.first().is_some_and(|word| word.text == b"message")
}

fn subscribed(arena: &Arena<'_>, channel: &str) -> Result<Client, Trouble> {
    let mut listener = arena.connect()?;
    listener.call(&["SUBSCRIBE", channel])?;
    Ok(listener)
}

fn try_take(client: &mut Client, lock: &str, owner: &str) -> Result<bool, Trouble> {
    let script = cases::script("redisson/lock").unwrap_or_default();
    let refused = client.text(&["EVAL", script, "1", lock, LEASE_MS, owner])?;
    Ok(refused.is_none())
}

fn take(client: &mut Client, lock: &str, owner: &str) -> Result<(), Trouble> {
    match try_take(client, lock, owner)? {
        true => Ok(()),
        false => Err(Trouble::broken("a free lock is granted", "it is refused", Vec::new())),
    }
}
