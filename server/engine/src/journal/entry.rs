//! What the journal is made of, and how an entry reads as a line. Knows neither keys nor clients,
//! only what was noted of them.

use std::fmt;

use lockwheel_resp::Reply;
use serde::Serialize;

use crate::limits::{JOURNAL_ARGUMENTS_MAX, JOURNAL_TEXT_BYTES_MAX};

/// Something that has happened.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its number: they count up from 1, and none is given twice.
    pub seq: u64,
    /// When, on the clock leases run on, in milliseconds since 1970.
    pub time_ms: i64,
    /// The `CLIENT ID` of who did it; 0 if it happened by itself.
    pub client: u64,
    /// What that client calls itself (`CLIENT SETNAME`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub what: JournalEvent,
    /// The keys it is about.
    pub keys: Vec<String>,
}

/// What an [`Entry`] tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum JournalEvent {
    /// A command was run.
    Command {
        /// The request; long arguments are cut, and many.
        argv: Vec<String>,
        /// What it was answered, in short.
        reply: String,
        /// A script called it.
        #[serde(skip_serializing_if = "is_false")]
        script: bool,
    },
    /// A lock was taken, or once more by its owner.
    Acquired {
        /// Whose it is: the token, or the field of a hash.
        owner: String,
        /// How often the owner has it now.
        count: i64,
        /// How long it lasts; nothing if it has no lease.
        lease_ms: Option<i64>,
    },
    /// A held lock was given another lease.
    Renewed {
        /// Whose it is.
        owner: String,
        /// How long it lasts; nothing if it has no lease any more.
        lease_ms: Option<i64>,
    },
    /// A lock was not given, since another has it.
    Refused {
        /// Who wanted it, as far as the request says.
        by: String,
        /// Whose it is.
        holder: String,
    },
    /// The owner let a lock go.
    Released {
        /// Whose it was.
        owner: String,
        /// How often the owner has it still.
        left: i64,
    },
    /// A lock was taken away by somebody who has not shown to be its owner.
    ReleasedByStranger {
        /// Whose it was.
        owner: String,
        /// The `CLIENT ID` that took it.
        holder: u64,
    },
    /// A lease ended before its owner let the lock go.
    ExpiredWhileHeld {
        /// Whose it was.
        owner: String,
        /// The `CLIENT ID` that took it.
        holder: u64,
    },
    /// Keys were removed or moved without regard to locks, this one too: `FLUSHALL`, a failover.
    Flushed {
        /// Whose it was.
        owner: String,
    },
    /// A lock was given to somebody who had been refused.
    Waited {
        /// Whose it is now.
        owner: String,
        /// How long after the first refusal.
        waited_ms: i64,
    },
    /// Somebody came to release a lock that they had lost.
    ReleasedTooLate {
        /// Whose it was.
        owner: String,
        /// How long ago it was lost.
        late_ms: i64,
    },
    /// Somebody came to renew a lock that they had lost.
    RenewedTooLate {
        /// Whose it was.
        owner: String,
        /// How long ago it was lost.
        late_ms: i64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Entry {
    /// Who did it, in words.
    pub fn who(&self) -> String {
        who(self.client, &self.name)
    }
}

/// A client in words.
pub(super) fn who(client: u64, name: &str) -> String {
    match (client, name) {
        (0, _) => "the clock".to_owned(),
        (_, "") => format!("client {client}"),
        _ => format!("client {client} '{name}'"),
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}: ", self.seq, self.who())?;
        let key = self.keys.first().map_or("", String::as_str);
        let lease = |lease_ms: &Option<i64>| {
            lease_ms.map_or("without a lease".to_owned(), |ms| format!("for {ms} ms"))
        };
        match &self.what {
            JournalEvent::Command { argv, reply, script } => {
                let within = if *script { "(script) " } else { "" };
                write!(f, "{within}{} -> {reply}", argv.join(" "))
            }
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
                write!(f, "released '{key}' as '{owner}', who has it {left} times more")
            }
            JournalEvent::ReleasedByStranger { owner, holder } => {
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
        }
    }
}

/// Entries in time order, a line each, with the milliseconds since the first.
pub fn story(entries: &[Entry]) -> String {
    let begin_ms = entries.first().map_or(0, |entry| entry.time_ms);
    let line = |entry: &Entry| {
        format!("  +{} ms {}\n", entry.time_ms - begin_ms, printable(&entry.to_string()))
    };
    entries.iter().map(line).collect()
}

/// A text on one line.
fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    line
}

/// Bytes as the journal shows them, cut.
pub(super) fn text(bytes: &[u8]) -> String {
    match bytes.get(..JOURNAL_TEXT_BYTES_MAX) {
        Some(begin) if begin.len() < bytes.len() => {
            format!("{}...", String::from_utf8_lossy(begin))
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A request as the journal shows it: without passwords, and cut.
pub(super) fn request(name: &str, argv: &[&[u8]]) -> Vec<String> {
    if matches!(name, "auth" | "hello" | "config|set") {
        let plain = if name == "config|set" { 3 } else { 1 + usize::from(name == "hello") };
        let shown = argv.iter().take(plain).map(|argument| text(argument));
        let hidden = (argv.len() > plain).then(|| "(hidden)".to_owned());
        return shown.chain(hidden).collect();
    }
    let shown = argv.iter().take(JOURNAL_ARGUMENTS_MAX).map(|argument| text(argument));
    let more = argv.len().checked_sub(JOURNAL_ARGUMENTS_MAX).filter(|&more| more > 0);
    shown.chain(more.map(|more| format!("... ({more} more)"))).collect()
}

/// A reply in short.
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
