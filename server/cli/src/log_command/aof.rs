//! Writes keys as commands that rebuild them, in the form of Redis's append-only files.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};

use bytes::BytesMut;
use lockwheel_engine::store::records::Record;
use lockwheel_engine::store::stream::group::Group;
use lockwheel_engine::store::stream::id::StreamId;
use lockwheel_engine::store::stream::{Entry, Stream};
use lockwheel_engine::store::value::ValueRef;
use lockwheel_resp::encode_request;

use super::deadlines::WallDeadlines;

/// Items of one command, as in Redis.
const ITEMS_MAX: usize = 64;

/// An argument of a command.
type Word<'a> = Cow<'a, [u8]>;

/// A writer of keys in the append-only format.
pub(super) struct AofWriter<'a> {
    out: &'a mut dyn Write,
    deadlines: WallDeadlines,
    /// The database that is selected.
    database: Option<usize>,
    request: BytesMut,
}

impl<'a> AofWriter<'a> {
    pub(super) fn new(out: &'a mut dyn Write, deadlines: WallDeadlines) -> AofWriter<'a> {
        AofWriter { out, deadlines, database: None, request: BytesMut::new() }
    }

    /// Writes a function library.
    pub(super) fn library(&mut self, code: &[u8]) -> io::Result<()> {
        self.command(&[&b"FUNCTION"[..], b"LOAD", code])
    }

    /// Writes a key.
    pub(super) fn key(&mut self, database: usize, record: Record<'_>) -> io::Result<()> {
        if self.database != Some(database) {
            self.command(&[&b"SELECT"[..], &*text(database)])?;
            self.database = Some(database);
        }
        let key = record.key();
        match record.value() {
            ValueRef::String(value) => self.command(&[&b"SET"[..], key, value.bytes()])?,
            ValueRef::Hash(fields) => {
                self.items("HSET", key, fields.iter().map(|(f, v)| [f.into(), v.into()]))?;
            }
            ValueRef::List(list) => {
                self.items("RPUSH", key, list.iter().map(|element| [element.into()]))?;
            }
            ValueRef::Set(set) => self.items("SADD", key, set.iter().map(|member| [member]))?,
            ValueRef::SortedSet(set) => {
                let scored = set.iter();
                self.items("ZADD", key, scored.map(|(m, score)| [text_of(score), m.into()]))?;
            }
            ValueRef::Stream(stream) => self.stream(key, stream)?,
            // Redis has no such type. The key must not be free, or a lock could be granted twice.
            ValueRef::Lock(lock) => {
                let last = lock.stored().iter().max_by_key(|hold| hold.deadline());
                let owner = last.map_or(&b""[..], |hold| &hold.owner);
                self.command(&[&b"SET"[..], key, owner])?;
            }
        }
        match record.deadline() {
            Some(deadline) => {
                self.command(&[&b"PEXPIREAT"[..], key, &*text(self.deadlines.wall_ms(deadline))])
            }
            None => Ok(()),
        }
    }

    fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<()> {
        self.request.clear();
        encode_request(words, &mut self.request);
        self.out.write_all(&self.request)
    }

    /// Writes commands that add items to a key.
    fn items<'v, const WORDS: usize>(
        &mut self,
        name: &'static str,
        key: &[u8],
        mut items: impl Iterator<Item = [Word<'v>; WORDS]>,
    ) -> io::Result<()> {
        loop {
            let part: Vec<[Word<'_>; WORDS]> = items.by_ref().take(ITEMS_MAX).collect();
            if part.is_empty() {
                return Ok(());
            }
            let mut words: Vec<Word<'_>> = vec![name.as_bytes().into(), key.into()];
            words.extend(part.into_iter().flatten());
            self.command(&words)?;
        }
    }

    /// Writes a stream. An entry that is pending must exist when a consumer claims it; entries
    /// that have been deleted since are added for that time.
    fn stream(&mut self, key: &[u8], stream: &Stream) -> io::Result<()> {
        let pending = stream.groups().values().flat_map(|group| group.pending().keys());
        let deleted: BTreeSet<StreamId> =
            pending.copied().filter(|id| !stream.entries().contains_key(id)).collect();
        self.entries(key, stream, &deleted)?;
        let top = deleted.last().copied().unwrap_or_default().max(stream.last_id);
        let length = i64::try_from(stream.len() + deleted.len()).unwrap_or(i64::MAX);
        self.totals(key, stream, top, stream.entries_added.max(length))?;
        for (name, group) in stream.groups() {
            self.group(key, name, group)?;
        }
        if deleted.is_empty() {
            return Ok(());
        }
        // Only a deletion other than by trimming raises the greatest deleted id, which cannot be
        // set to zero afterwards.
        match stream.first_id() {
            None => self.command(&[&b"XTRIM"[..], key, b"MAXLEN", b"0"])?,
            Some(first) => {
                self.command(&[&b"XTRIM"[..], key, b"MINID", &*text(first)])?;
                self.items("XDEL", key, deleted.range(first..).map(|id| [text(id).into()]))?;
            }
        }
        self.totals(key, stream, stream.last_id, stream.entries_added)
    }

    /// Writes the entries, and empty ones for ids that are `deleted`.
    fn entries(
        &mut self,
        key: &[u8],
        stream: &Stream,
        deleted: &BTreeSet<StreamId>,
    ) -> io::Result<()> {
        let mut deleted = deleted.iter().copied().peekable();
        for (&id, entry) in stream.entries() {
            while let Some(id) = deleted.next_if(|deleted| *deleted < id) {
                self.placeholder(key, id)?;
            }
            self.entry(key, id, entry)?;
        }
        if stream.is_empty() && deleted.peek().is_none() {
            // A stream that is empty is added together with an entry that it does not keep.
            let id = stream.last_id.max(StreamId { ms: 0, seq: 1 });
            return self.command(&[&b"XADD"[..], key, b"MAXLEN", b"0", &*text(id), b"x", b"y"]);
        }
        deleted.try_for_each(|id| self.placeholder(key, id))
    }

    fn placeholder(&mut self, key: &[u8], id: StreamId) -> io::Result<()> {
        self.command(&[&b"XADD"[..], key, &*text(id), b"x", b"y"])
    }

    fn entry(&mut self, key: &[u8], id: StreamId, entry: &Entry) -> io::Result<()> {
        let mut words: Vec<Word<'_>> = vec![b"XADD".into(), key.into(), text(id).into()];
        for (field, value) in entry.fields() {
            words.extend([Word::from(field), value.into()]);
        }
        self.command(&words)
    }

    fn totals(
        &mut self,
        key: &[u8],
        stream: &Stream,
        last_id: StreamId,
        entries_added: i64,
    ) -> io::Result<()> {
        self.command(&[
            &b"XSETID"[..],
            key,
            &*text(last_id),
            b"ENTRIESADDED",
            &*text(entries_added),
            b"MAXDELETEDID",
            &*text(stream.max_deleted_id),
        ])
    }

    fn group(&mut self, key: &[u8], name: &[u8], group: &Group) -> io::Result<()> {
        let read = text(group.entries_read.unwrap_or(-1));
        let last_id = text(group.last_id);
        self.command(&[&b"XGROUP"[..], b"CREATE", key, name, &*last_id, b"ENTRIESREAD", &*read])?;
        for (consumer, _) in group.consumers() {
            self.command(&[&b"XGROUP"[..], b"CREATECONSUMER", key, name, consumer])?;
        }
        for (&id, pending) in group.pending() {
            self.command(&[
                &b"XCLAIM"[..],
                key,
                name,
                &pending.consumer,
                b"0",
                &*text(id),
                b"TIME",
                &*text(pending.delivered_at.0),
                b"RETRYCOUNT",
                &*text(pending.deliveries),
                b"JUSTID",
                b"FORCE",
            ])?;
        }
        Ok(())
    }
}

fn text(value: impl std::fmt::Display) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A score with all its digits.
fn text_of<'a>(score: f64) -> Word<'a> {
    let text = if score.is_finite() { format!("{score:e}") } else { score.to_string() };
    text.into_bytes().into()
}
