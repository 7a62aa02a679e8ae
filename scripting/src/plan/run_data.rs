//! The values of a run. Independent of statements and of the host.

use bytes::Bytes;
use lockwheel_resp::Reply;

use super::replay::CallRecord;
use super::value_ref::{ValueRef, as_integer};

/// The values of a run.
pub(super) struct RunData<'r> {
    pub(super) literals: &'r [Bytes],
    pub(super) keys: &'r [&'r [u8]],
    pub(super) args: &'r [&'r [u8]],
    pub(super) record: &'r mut CallRecord,
    pub(super) text: &'r mut Vec<u8>,
}

impl RunData<'_> {
    /// The bytes of a string.
    pub(super) fn bytes(&self, value: ValueRef) -> Option<&[u8]> {
        Some(match value {
            ValueRef::Literal(at) => &self.literals[at as usize],
            ValueRef::Key(at) => self.keys[at as usize],
            ValueRef::Arg(at) => self.args[at as usize],
            ValueRef::Text(_) | ValueRef::Item { .. } => self.shared(value)?,
            ValueRef::Made { start, len } => &self.text[start as usize..][..len as usize],
            _ => return None,
        })
    }

    /// A string from the reply of a command.
    pub(super) fn shared(&self, value: ValueRef) -> Option<&Bytes> {
        let reply = match value {
            ValueRef::Text(at) => &self.record.replies[at as usize],
            ValueRef::Item { reply, at } => &self.items(reply)[at as usize],
            _ => return None,
        };
        match reply {
            Reply::Bulk(text) | Reply::Simple(text) => Some(text),
            _ => None,
        }
    }

    /// The array from the reply of a command.
    pub(super) fn items(&self, reply: u32) -> &[Reply] {
        match &self.record.replies[reply as usize] {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// Lua's `==`.
    pub(super) fn equal(&self, left: ValueRef, right: ValueRef) -> bool {
        match (left, right) {
            (ValueRef::Nil, ValueRef::Nil)
            | (ValueRef::Keys, ValueRef::Keys)
            | (ValueRef::Args, ValueRef::Args) => true,
            (ValueRef::Boolean(left), ValueRef::Boolean(right)) => left == right,
            (ValueRef::Number(left), ValueRef::Number(right)) => left == right,
            (ValueRef::Status(left), ValueRef::Status(right))
            | (ValueRef::Array(left), ValueRef::Array(right))
            | (ValueRef::List(left), ValueRef::List(right)) => left == right,
            _ => match (self.bytes(left), self.bytes(right)) {
                (Some(left), Some(right)) => left == right,
                _ => false,
            },
        }
    }

    /// Appends a string to the run's text.
    pub(super) fn append(&mut self, value: ValueRef) -> Option<()> {
        match value {
            ValueRef::Made { start, len } => {
                let start = start as usize;
                self.text.extend_from_within(start..start + len as usize);
            }
            ValueRef::Number(number) => {
                let integer = as_integer(number)?;
                self.text.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
            }
            ValueRef::Literal(at) => self.text.extend_from_slice(&self.literals[at as usize]),
            ValueRef::Key(at) => self.text.extend_from_slice(self.keys[at as usize]),
            ValueRef::Arg(at) => self.text.extend_from_slice(self.args[at as usize]),
            _ => {
                let text = self.shared(value)?.clone();
                self.text.extend_from_slice(&text);
            }
        }
        Some(())
    }
}
