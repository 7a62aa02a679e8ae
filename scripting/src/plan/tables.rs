//! The tables of a run: `KEYS`, `ARGV`, replies, and lists that the script makes.

use lockwheel_resp::Reply;

use super::run::Run;
use super::tree::{Expr, Place};
use super::value::{ITEM_BYTES, Value, as_integer};

/// Tables one run may make.
const LISTS_MAX: usize = 64;

impl Run<'_> {
    pub(super) fn length(&self, value: Value) -> Option<usize> {
        match value {
            Value::Keys => Some(self.held.keys.len()),
            Value::Args => Some(self.held.args.len()),
            Value::Array(at) => Some(self.held.items(at).len()),
            Value::List(at) => Some(self.lists[at as usize].len()),
            text => Some(self.held.bytes(text)?.len()),
        }
    }

    pub(super) fn index(&self, table: Value, index: Value) -> Option<Value> {
        match (table, index) {
            (Value::Status(at), index) => {
                let is_ok = self.held.bytes(index) == Some(b"ok");
                Some(if is_ok { Value::Text(at) } else { Value::Nil })
            }
            (table, Value::Number(number)) if table.is_table() => {
                match as_integer(number).and_then(|place| usize::try_from(place - 1).ok()) {
                    Some(place) => self.item(table, place),
                    None => Some(Value::Nil),
                }
            }
            (table, _) if table.is_table() => Some(Value::Nil),
            _ => None,
        }
    }

    /// What `KEYS` or `ARGV` holds at a place that follows from a local.
    pub(super) fn item_at(&self, table: Value, place: Place) -> Option<Value> {
        if let Some(at) = place.of(self.registers) {
            return self.item(table, at);
        }
        let index = match (place.add, self.registers[usize::from(place.local)]) {
            (0, index) => index,
            (add, index) => Value::Number(self.number(index)? + f64::from(add)),
        };
        self.index(table, index)
    }

    /// The item at `place`, counted from 0.
    pub(super) fn item(&self, table: Value, place: usize) -> Option<Value> {
        let short = u32::try_from(place).ok()?;
        Some(match table {
            Value::Keys if place < self.held.keys.len() => Value::Key(short),
            Value::Args if place < self.held.args.len() => Value::Arg(short),
            Value::List(at) => self.lists[at as usize].get(place).copied().unwrap_or(Value::Nil),
            Value::Array(reply) => match self.held.items(reply).get(place) {
                None => Value::Nil,
                Some(Reply::Bulk(_)) => Value::Item { reply, at: short },
                Some(Reply::Integer(number)) => Value::Number(*number as f64),
                Some(Reply::Null | Reply::NullArray) => Value::Boolean(false),
                // A table of its own, which has no name here.
                Some(_) => return None,
            },
            _ => Value::Nil,
        })
    }

    pub(super) fn list(&mut self, items: &[Expr]) -> Option<Value> {
        let at = self.lists_used;
        if at >= LISTS_MAX {
            return None;
        }
        self.lists_used += 1;
        if self.lists.len() <= at {
            self.lists.push(Vec::new());
        }
        self.lists[at].clear();
        let mut has_hole = false;
        for item in items {
            match self.value(item)? {
                Value::Nil => has_hole = true,
                _ if has_hole => return None,
                value => {
                    self.spend(ITEM_BYTES)?;
                    self.lists[at].push(value);
                }
            }
        }
        Some(Value::List(u32::try_from(at).ok()?))
    }

    /// Adds to the end of a list. Tables stay out: a list could come to contain itself.
    pub(super) fn push(&mut self, list: Value, value: Value) -> Option<()> {
        let Value::List(at) = list else { return None };
        if matches!(value, Value::Nil) {
            return Some(());
        }
        if value.is_table() {
            return None;
        }
        self.spend(ITEM_BYTES)?;
        self.lists[at as usize].push(value);
        Some(())
    }

    pub(super) fn store(&mut self, list: u16, index: &Expr, value: &Expr) -> Option<()> {
        let list = self.registers[usize::from(list)];
        let (index, value) = (self.value(index)?, self.value(value)?);
        let (Value::List(at), Value::Number(index)) = (list, index) else { return None };
        let place = usize::try_from(as_integer(index)? - 1).ok()?;
        if place == self.lists[at as usize].len() {
            return self.push(list, value);
        }
        let slot = self.lists[at as usize].get_mut(place)?;
        if value.is_table() || matches!(value, Value::Nil) {
            return None;
        }
        *slot = value;
        Some(())
    }
}
