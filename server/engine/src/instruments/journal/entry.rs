//! The entries of the journal, and their form as text and JSON.

use std::fmt;

use lockwheel_resp::Reply;
use serde::Serialize;

use crate::command::Command;
use crate::command::argument::without_secrets;
use crate::limits::JOURNAL_ARGUMENTS_MAX;
use crate::locks::recognise::LockEvent;
use crate::locks::text;

/// An event in the journal.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its number, counted up from 1 and never reused.
    pub seq: u64,
    /// Its time on the lease clock, in milliseconds since 1970.
    pub time_ms: i64,
    /// The `CLIENT ID` of the client that caused it; 0 for the clock.
    pub client: u64,
    /// The name of that client (`CLIENT SETNAME`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The library of that client (`CLIENT SETINFO`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub library: String,
    /// The number of the request that the entry belongs to, with those of the same script or
    /// transaction; 0 for those of the clock and of connections.
    pub request: u64,
    /// Whether the key of a lock event is only possibly a lock.
    #[serde(skip_serializing_if = "is_false")]
    pub possible: bool,
    /// The event.
    #[serde(flatten)]
    pub event: JournalEvent,
    /// The keys involved.
    pub keys: Vec<String>,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JournalEvent {
    /// A command was run.
    Command {
        /// The request, shortened.
        argv: Vec<String>,
        /// The reply, shortened.
        reply: String,
        /// Whether a script called the command.
        #[serde(skip_serializing_if = "is_false")]
        script: bool,
        /// Whether `EXEC` ran the command.
        #[serde(skip_serializing_if = "is_false")]
        transaction: bool,
        /// The fault that happened to the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        fault: Option<AppliedFault>,
    },
    /// A fault happened to a request that was not run.
    Fault {
        /// The request, shortened.
        argv: Vec<String>,
        /// The fault.
        fault: AppliedFault,
    },
    /// A client that a rule held was released.
    Freed {
        /// The number of the rule.
        rule: u64,
    },
    /// The clock was stopped, started, moved or stepped.
    Clock {
        /// What happened.
        order: String,
    },
    /// A connection was opened.
    Connected {},
    /// A connection was closed.
    Disconnected {},
    /// A lock was acquired, possibly again by its owner.
    Acquired {
        /// The owner: the token, or the field of a hash.
        owner: String,
        /// How many times the owner holds it now.
        count: i64,
        /// The lease in milliseconds; none without a lease.
        lease_ms: Option<i64>,
    },
    /// The lease of a held lock was set.
    Renewed {
        /// The owner.
        owner: String,
        /// The lease in milliseconds; none if it was removed.
        lease_ms: Option<i64>,
    },
    /// A lock was refused, since another owner holds it.
    Refused {
        /// The owner that wanted it, if the request names one.
        by: String,
        /// The present owner.
        holder: String,
    },
    /// The owner released a lock.
    Released {
        /// The previous owner.
        owner: String,
        /// How many times the owner still holds it.
        left: i64,
    },
    /// A lock was released by a client that has not proved to be its owner.
    ReleasedByNonOwner {
        /// The previous owner.
        owner: String,
        /// The `CLIENT ID` of the client that acquired it.
        holder: u64,
    },
    /// A lease expired before the owner released the lock.
    ExpiredWhileHeld {
        /// The previous owner.
        owner: String,
        /// The `CLIENT ID` of the client that acquired it.
        holder: u64,
    },
    /// A command that affects many keys removed or moved this lock: `FLUSHALL`, a failover.
    Flushed {
        /// The previous owner.
        owner: String,
    },
    /// A lock was acquired after it had been refused.
    Waited {
        /// The owner.
        owner: String,
        /// Milliseconds since the first refusal.
        waited_ms: i64,
    },
    /// An owner tried to release a lock after losing it.
    ReleasedTooLate {
        /// The previous owner.
        owner: String,
        /// Milliseconds since the loss.
        late_ms: i64,
    },
    /// An owner tried to renew a lock after losing it.
    RenewedTooLate {
        /// The previous owner.
        owner: String,
        /// Milliseconds since the loss.
        late_ms: i64,
    },
    /// The use of a key that was possibly a lock has shown that it is one.
    Recognised {
        /// Why.
        reason: &'static str,
    },
}

impl JournalEvent {
    /// The entry for an event of a lock.
    pub(super) fn of(event: LockEvent<'_>) -> JournalEvent {
        match event {
            LockEvent::Acquired { owner, count, lease_ms } => {
                JournalEvent::Acquired { owner: text(owner), count, lease_ms }
            }
            LockEvent::Renewed { holder, lease_ms, .. } => {
                JournalEvent::Renewed { owner: text(&holder.owner), lease_ms }
            }
            LockEvent::Refused { by, holders } => {
                let holders: Vec<String> = holders.iter().map(|it| text(&it.owner)).collect();
                JournalEvent::Refused { by: text(by), holder: holders.join(", ") }
            }
            LockEvent::Released { holder, left, release } if release.by_owner => {
                JournalEvent::Released { owner: text(&holder.owner), left }
            }
            LockEvent::Released { holder, .. } => JournalEvent::ReleasedByNonOwner {
                owner: text(&holder.owner),
                holder: holder.client,
            },
            LockEvent::Expired { holder } => {
                JournalEvent::ExpiredWhileHeld { owner: text(&holder.owner), holder: holder.client }
            }
            LockEvent::Flushed { holder } => JournalEvent::Flushed { owner: text(&holder.owner) },
            LockEvent::Waited { owner, waited_ms } => {
                JournalEvent::Waited { owner: text(owner), waited_ms }
            }
            LockEvent::TooLate { holder, late_ms, releases: true, .. } => {
                JournalEvent::ReleasedTooLate { owner: text(&holder.owner), late_ms }
            }
            LockEvent::TooLate { holder, late_ms, .. } => {
                JournalEvent::RenewedTooLate { owner: text(&holder.owner), late_ms }
            }
            LockEvent::Recognised { reason } => JournalEvent::Recognised { reason },
        }
    }
}

/// A fault that happened to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppliedFault {
    /// The number of the rule.
    pub rule: u64,
    /// What happened: `executed; reply lost; connection closed`.
    pub effect: String,
}

impl fmt::Display for AppliedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[fault {}: {}]", self.rule, self.effect)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Entry {
    /// The client that caused the event, as text.
    pub fn actor(&self) -> String {
        let client = client_text(self.client, &self.name);
        if self.library.is_empty() { client } else { format!("{client} ({})", self.library) }
    }

    /// Whether the entry is a command that a script or `EXEC` ran.
    fn is_part(&self) -> bool {
        matches!(
            self.event,
            JournalEvent::Command { script: true, .. }
                | JournalEvent::Command { transaction: true, .. }
        )
    }

    /// Whether the entry is a request of a client.
    pub(super) fn is_request(&self) -> bool {
        !self.is_part()
            && matches!(self.event, JournalEvent::Command { .. } | JournalEvent::Fault { .. })
    }
}

/// A client as text.
pub(super) fn client_text(client: u64, name: &str) -> String {
    match (client, name) {
        (0, _) => "the clock".to_owned(),
        (_, "") => format!("client {client}"),
        _ => format!("client {client} '{name}'"),
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}: ", self.seq, self.actor())?;
        let key = self.keys.first().map_or("", String::as_str);
        let lease = |lease_ms: &Option<i64>| {
            lease_ms.map_or("without a lease".to_owned(), |ms| format!("for {ms} ms"))
        };
        match &self.event {
            JournalEvent::Command { argv, reply, script, transaction, fault } => {
                let origin = match (script, transaction) {
                    (true, _) => "(script) ",
                    (_, true) => "(transaction) ",
                    _ => "",
                };
                write!(f, "{origin}{} -> {reply}", argv.join(" "))?;
                fault.as_ref().map_or(Ok(()), |fault| write!(f, " {fault}"))
            }
            JournalEvent::Fault { argv, fault } => write!(f, "{} {fault}", argv.join(" ")),
            JournalEvent::Freed { rule } => write!(f, "was released by rule {rule}"),
            JournalEvent::Clock { order } => write!(f, "{order}"),
            JournalEvent::Connected {} => write!(f, "connected"),
            JournalEvent::Disconnected {} => write!(f, "disconnected"),
            JournalEvent::Acquired { owner, count: 0 | 1, lease_ms } => {
                write!(f, "acquired '{key}' as '{owner}' {}", lease(lease_ms))
            }
            JournalEvent::Acquired { owner, count, lease_ms } => {
                write!(f, "acquired '{key}' as '{owner}', now {count} times, {}", lease(lease_ms))
            }
            JournalEvent::Renewed { owner, lease_ms } => {
                write!(f, "renewed '{key}' of '{owner}' {}", lease(lease_ms))
            }
            JournalEvent::Refused { by, holder } => {
                write!(f, "was refused '{key}' as '{by}', which '{holder}' has")
            }
            JournalEvent::Released { owner, left: 0 } => write!(f, "released '{key}' as '{owner}'"),
            JournalEvent::Released { owner, left } => {
                write!(f, "released '{key}' as '{owner}', still held {left} times")
            }
            JournalEvent::ReleasedByNonOwner { owner, holder } => {
                write!(f, "released '{key}', which is that of '{owner}', taken by client {holder}")
            }
            JournalEvent::ExpiredWhileHeld { owner, holder } => {
                write!(f, "ended the lease of '{key}', held as '{owner}' by client {holder}")
            }
            JournalEvent::Flushed { owner } => {
                write!(f, "removed '{key}' of '{owner}' among others")
            }
            JournalEvent::Waited { owner, waited_ms } => {
                write!(f, "has waited {waited_ms} ms for '{key}' as '{owner}'")
            }
            JournalEvent::ReleasedTooLate { owner, late_ms } => {
                write!(f, "came to release '{key}' as '{owner}', lost {late_ms} ms ago")
            }
            JournalEvent::RenewedTooLate { owner, late_ms } => {
                write!(f, "came to renew '{key}' as '{owner}', lost {late_ms} ms ago")
            }
            JournalEvent::Recognised { reason } => {
                write!(f, "showed that '{key}' is a lock: {reason}")
            }
        }?;
        if self.possible { write!(f, " (possibly a lock)") } else { Ok(()) }
    }
}

/// Entries as text, one line each, with the milliseconds since the first entry. The calls of a
/// script or a transaction follow the request, indented. The entry with the number `marked` has an
/// arrow.
pub fn story(entries: &[Entry], marked: Option<u64>) -> String {
    let begin_ms = entries.first().map_or(0, |entry| entry.time_ms);
    let mut lines = String::new();
    let mut add = |entry: &Entry, indent: &str| {
        let mark = if marked == Some(entry.seq) { "=>" } else { "  " };
        let after_ms = entry.time_ms - begin_ms;
        let line = format!("{mark}{indent}+{after_ms} ms {}", printable(&entry.to_string()));
        lines.push_str(&line);
        lines.push('\n');
    };
    let mut rest = entries;
    while let [first, ..] = rest {
        let of_request = |entry: &&Entry| entry.request == first.request && first.request > 0;
        let (request, after) = rest.split_at(rest.iter().take_while(of_request).count().max(1));
        rest = after;
        let head = request.iter().find(|entry| entry.is_request());
        if let Some(head) = head.filter(|_| request.iter().any(Entry::is_part)) {
            add(head, "");
            request.iter().filter(|entry| entry.seq != head.seq).for_each(|it| add(it, "  "));
        } else {
            request.iter().for_each(|entry| add(entry, ""));
        }
    }
    lines
}

/// A text without control characters.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    line
}

/// A request as shown in the journal: without passwords, and shortened.
pub(super) fn request(command: &Command, name: &str, argv: &[&[u8]]) -> Vec<String> {
    let words = without_secrets(command.arguments, name.split('|').count(), argv);
    let shown = words.iter().take(JOURNAL_ARGUMENTS_MAX).map(|argument| text(argument));
    let more = argv.len().checked_sub(JOURNAL_ARGUMENTS_MAX).filter(|&more| more > 0);
    shown.chain(more.map(|more| format!("... ({more} more)"))).collect()
}

/// A reply as shown in the journal: shortened.
pub(super) fn answer(reply: &Reply) -> String {
    match reply {
        Reply::Simple(line) => text(line),
        Reply::Error(line) => format!("error: {}", text(line)),
        Reply::Integer(number) => number.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", text(bytes)),
        Reply::Null | Reply::NullArray => "nil".to_owned(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) | Reply::Several(items) => {
            format!("[{} items]", items.len())
        }
        Reply::Map(pairs) => format!("{{{} pairs}}", pairs.len()),
        Reply::Double(number) => number.to_string(),
        Reply::Boolean(yes) => yes.to_string(),
        Reply::BigNumber(digits) => text(digits),
        Reply::Verbatim { .. } => "text".to_owned(),
    }
}
