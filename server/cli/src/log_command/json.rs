//! Writes keys as JSON, one object in each line.

use std::io::{self, Write};

use lockwheel_engine::store::lock::{Hold, LockMode};
use lockwheel_engine::store::records::Record;
use lockwheel_engine::store::stream::Stream;
use lockwheel_engine::store::stream::group::{Group, Pending};
use lockwheel_engine::store::stream::id::StreamId;
use lockwheel_engine::store::value::ValueRef;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::deadlines::WallDeadlines;

/// A writer of keys as JSON.
pub(super) struct JsonWriter<'a> {
    out: &'a mut dyn Write,
    deadlines: WallDeadlines,
}

#[derive(serde::Serialize)]
struct LibraryLine<'a> {
    r#type: &'static str,
    code: Text<'a>,
}

#[derive(serde::Serialize)]
struct UserLine<'a> {
    r#type: &'static str,
    name: Text<'a>,
    rules: Text<'a>,
}

#[derive(serde::Serialize)]
struct KeyLine<'a> {
    database: usize,
    key: Text<'a>,
    r#type: &'static str,
    /// Deadline on the wall clock, or null.
    deadline_ms: Option<i64>,
    value: Contents<'a>,
}

/// Bytes: a string if they are UTF-8, else an object with their hexadecimal digits.
struct Text<'a>(&'a [u8]);

/// The value of a key.
struct Contents<'a>(ValueRef<'a>, WallDeadlines);

/// A number, or a string with a sign if it is not finite.
struct Score(f64);

#[derive(serde::Serialize)]
struct StreamValue<'a> {
    last_id: String,
    max_deleted_id: String,
    entries_added: i64,
    entries: Vec<(String, Vec<[Text<'a>; 2]>)>,
    groups: Vec<GroupValue<'a>>,
}

#[derive(serde::Serialize)]
struct GroupValue<'a> {
    name: Text<'a>,
    last_id: String,
    entries_read: Option<i64>,
    consumers: Vec<ConsumerValue<'a>>,
    pending: Vec<PendingValue<'a>>,
}

/// An owner of a native lock.
#[derive(serde::Serialize)]
struct HoldValue<'a> {
    owner: Text<'a>,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    permits: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<u32>,
    token: u64,
    count: u64,
    deadline_ms: i64,
    grace_ms: Option<i64>,
    meta: Option<Text<'a>>,
}

#[derive(serde::Serialize)]
struct ConsumerValue<'a> {
    name: Text<'a>,
    seen_ms: i64,
    active_ms: Option<i64>,
}

#[derive(serde::Serialize)]
struct PendingValue<'a> {
    id: String,
    consumer: Text<'a>,
    delivered_ms: i64,
    deliveries: u64,
}

impl<'a> JsonWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write, deadlines: WallDeadlines) -> JsonWriter<'a> {
        JsonWriter { out, deadlines }
    }

    /// Writes a function library.
    pub(super) fn library(&mut self, code: &[u8]) -> io::Result<()> {
        self.line(&LibraryLine { r#type: "library", code: Text(code) })
    }

    /// Writes a user of a cluster.
    pub(super) fn user(&mut self, name: &[u8], rules: &[u8]) -> io::Result<()> {
        self.line(&UserLine { r#type: "user", name: Text(name), rules: Text(rules) })
    }

    /// Writes a key.
    pub(super) fn key(&mut self, database: usize, record: Record<'_>) -> io::Result<()> {
        let value = record.value();
        self.line(&KeyLine {
            database,
            key: Text(record.key()),
            r#type: value.kind().name(),
            deadline_ms: record.deadline().map(|deadline| self.deadlines.wall_ms(deadline)),
            value: Contents(value, self.deadlines),
        })
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.out, line)?;
        self.out.write_all(b"\n")
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(self.0) {
            return serializer.serialize_str(text);
        }
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("hex", &digits)?;
        map.end()
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(if self.0 > 0.0 { "inf" } else { "-inf" })
        }
    }
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            ValueRef::String(value) => Text(value.bytes()).serialize(serializer),
            ValueRef::Hash(fields) => {
                serializer.collect_seq(fields.iter().map(|(f, v)| [Text(f), Text(v)]))
            }
            ValueRef::List(list) => serializer.collect_seq(list.iter().map(Text)),
            ValueRef::Set(set) => {
                let members: Vec<_> = set.iter().collect();
                serializer.collect_seq(members.iter().map(|member| Text(member)))
            }
            ValueRef::SortedSet(set) => {
                serializer.collect_seq(set.iter().map(|(m, score)| (Text(m), Score(score))))
            }
            ValueRef::Stream(stream) => StreamValue::of(stream).serialize(serializer),
            ValueRef::Lock(lock) => {
                let holds = lock.stored().iter();
                serializer.collect_seq(holds.map(|hold| HoldValue::of(hold, self.1)))
            }
        }
    }
}

impl<'a> HoldValue<'a> {
    fn of(hold: &'a Hold, deadlines: WallDeadlines) -> HoldValue<'a> {
        let (permits, of) = match hold.mode {
            LockMode::Permits { count, of } => (Some(count), Some(of)),
            LockMode::Exclusive | LockMode::Shared => (None, None),
        };
        HoldValue {
            owner: Text(&hold.owner),
            mode: hold.mode.name(),
            permits,
            of,
            token: hold.token,
            count: hold.leases.iter().map(|lease| lease.count).sum(),
            deadline_ms: deadlines.wall_ms(hold.deadline()),
            grace_ms: hold.last_lease().and_then(|lease| lease.grace_ms),
            meta: hold.meta.as_deref().map(Text),
        }
    }
}

impl<'a> StreamValue<'a> {
    fn of(stream: &'a Stream) -> StreamValue<'a> {
        let fields = |(f, v)| [Text(f), Text(v)];
        let entries = stream.entries().iter();
        let groups = stream.groups().iter();
        StreamValue {
            last_id: stream.last_id.to_string(),
            max_deleted_id: stream.max_deleted_id.to_string(),
            entries_added: stream.entries_added,
            entries: entries
                .map(|(id, entry)| (id.to_string(), entry.fields().map(fields).collect()))
                .collect(),
            groups: groups.map(|(name, group)| GroupValue::of(name, group)).collect(),
        }
    }
}

impl<'a> GroupValue<'a> {
    fn of(name: &'a [u8], group: &'a Group) -> GroupValue<'a> {
        let consumers = group.consumers().map(|(name, consumer)| ConsumerValue {
            name: Text(name),
            seen_ms: consumer.seen_at.0,
            active_ms: consumer.active_at.map(|at| at.0),
        });
        let pending = |(id, pending): (&StreamId, &'a Pending)| PendingValue {
            id: id.to_string(),
            consumer: Text(&pending.consumer),
            delivered_ms: pending.delivered_at.0,
            deliveries: pending.deliveries,
        };
        GroupValue {
            name: Text(name),
            last_id: group.last_id.to_string(),
            entries_read: group.entries_read,
            consumers: consumers.collect(),
            pending: group.pending().iter().map(pending).collect(),
        }
    }
}
