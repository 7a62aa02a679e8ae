//! Where the values of a run are. Knows neither statements nor a host.

use bytes::Bytes;
use lockwheel_resp::Reply;

use super::replay::Record;
use super::value::{Value, as_integer};

/// Where the values of a run are.
pub(super) struct Held<'r> {
    pub(super) literals: &'r [Bytes],
    pub(super) keys: &'r [&'r [u8]],
    pub(super) args: &'r [&'r [u8]],
    pub(super) record: &'r mut Record,
    pub(super) text: &'r mut Vec<u8>,
}

impl Held<'_> {
    /// A string's bytes.
    pub(super) fn bytes(&self, value: Value) -> Option<&[u8]> {
        Some(match value {
            Value::Literal(at) => &self.literals[at as usize],
            Value::Key(at) => self.keys[at as usize],
            Value::Arg(at) => self.args[at as usize],
            Value::Text(_) | Value::Item { .. } => self.shared(value)?,
            Value::Made { start, len } => &self.text[start as usize..][..len as usize],
            _ => return None,
        })
    }

    /// A string that a command was answered with.
    pub(super) fn shared(&self, value: Value) -> Option<&Bytes> {
        let reply = match value {
            Value::Text(at) => &self.record.replies[at as usize],
            Value::Item { reply, at } => &self.items(reply)[at as usize],
            _ => return None,
        };
        match reply {
            Reply::Bulk(text) | Reply::Simple(text) => Some(text),
            _ => None,
        }
    }

    /// The array a command was answered with.
    pub(super) fn items(&self, reply: u32) -> &[Reply] {
        match &self.record.replies[reply as usize] {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// Lua's `==`.
    pub(super) fn equal(&self, left: Value, right: Value) -> bool {
        match (left, right) {
            (Value::Nil, Value::Nil) | (Value::Keys, Value::Keys) | (Value::Args, Value::Args) => {
                true
            }
            (Value::Boolean(left), Value::Boolean(right)) => left == right,
            (Value::Number(left), Value::Number(right)) => left == right,
            (Value::Status(left), Value::Status(right))
            | (Value::Array(left), Value::Array(right))
            | (Value::List(left), Value::List(right)) => left == right,
            _ => match (self.bytes(left), self.bytes(right)) {
                (Some(left), Some(right)) => left == right,
                _ => false,
            },
        }
    }

    /// Adds a string to the text.
    pub(super) fn append(&mut self, value: Value) -> Option<()> {
        match value {
            Value::Made { start, len } => {
                let start = start as usize;
                self.text.extend_from_within(start..start + len as usize);
            }
            Value::Number(number) => {
                let integer = as_integer(number)?;
                self.text.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
            }
            Value::Literal(at) => self.text.extend_from_slice(&self.literals[at as usize]),
            Value::Key(at) => self.text.extend_from_slice(self.keys[at as usize]),
            Value::Arg(at) => self.text.extend_from_slice(self.args[at as usize]),
            _ => {
                let text = self.shared(value)?.clone();
                self.text.extend_from_slice(&text);
            }
        }
        Some(())
    }
}
