//! The tables of a run: `KEYS`, `ARGV`, replies, and lists that the script makes.

use lockwheel_resp::Reply;

use super::execute::Run;
use super::tree::{Expr, IndexedLocal};
use super::value_ref::{ITEM_BYTES, ValueRef, as_integer};

/// The number of tables that one run may make.
const LISTS_MAX: usize = 64;

impl Run<'_> {
    pub(super) fn length(&self, value: ValueRef) -> Option<usize> {
        match value {
            ValueRef::Keys => Some(self.data.keys.len()),
            ValueRef::Args => Some(self.data.args.len()),
            ValueRef::Array(at) => Some(self.data.items(at).len()),
            ValueRef::List(at) => Some(self.lists[at as usize].len()),
            text => Some(self.data.bytes(text)?.len()),
        }
    }

    pub(super) fn index(&self, table: ValueRef, index: ValueRef) -> Option<ValueRef> {
        match (table, index) {
            (ValueRef::Status(at), index) => {
                let is_ok = self.data.bytes(index) == Some(b"ok");
                Some(if is_ok { ValueRef::Text(at) } else { ValueRef::Nil })
            }
            (table, ValueRef::Number(number)) if table.is_table() => {
                match as_integer(number).and_then(|place| usize::try_from(place - 1).ok()) {
                    Some(place) => self.item(table, place),
                    None => Some(ValueRef::Nil),
                }
            }
            (table, _) if table.is_table() => Some(ValueRef::Nil),
            _ => None,
        }
    }

    /// The item of `KEYS` or `ARGV` at an index that depends on a local.
    pub(super) fn item_at(&self, table: ValueRef, place: IndexedLocal) -> Option<ValueRef> {
        if let Some(at) = place.of(self.registers) {
            return self.item(table, at);
        }
        let index = match (place.add, self.registers[usize::from(place.local)]) {
            (0, index) => index,
            (add, index) => ValueRef::Number(self.number(index)? + f64::from(add)),
        };
        self.index(table, index)
    }

    /// The item at `place`, counted from 0.
    pub(super) fn item(&self, table: ValueRef, place: usize) -> Option<ValueRef> {
        let short = u32::try_from(place).ok()?;
        Some(match table {
            ValueRef::Keys if place < self.data.keys.len() => ValueRef::Key(short),
            ValueRef::Args if place < self.data.args.len() => ValueRef::Arg(short),
            ValueRef::List(at) => {
                self.lists[at as usize].get(place).copied().unwrap_or(ValueRef::Nil)
            }
            ValueRef::Array(reply) => match self.data.items(reply).get(place) {
                None => ValueRef::Nil,
                Some(Reply::Bulk(_)) => ValueRef::Item { reply, at: short },
                Some(Reply::Integer(number)) => ValueRef::Number(*number as f64),
                Some(Reply::Null | Reply::NullArray) => ValueRef::Boolean(false),
                // A nested table, which no value can refer to.
                Some(_) => return None,
            },
            _ => ValueRef::Nil,
        })
    }

    pub(super) fn list(&mut self, items: &[Expr]) -> Option<ValueRef> {
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
                ValueRef::Nil => has_hole = true,
                _ if has_hole => return None,
                value => {
                    self.spend(ITEM_BYTES)?;
                    self.lists[at].push(value);
                }
            }
        }
        Some(ValueRef::List(u32::try_from(at).ok()?))
    }

    /// Appends to a list. Tables are not allowed: a list could contain itself.
    pub(super) fn push(&mut self, list: ValueRef, value: ValueRef) -> Option<()> {
        let ValueRef::List(at) = list else { return None };
        if matches!(value, ValueRef::Nil) {
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
        let (ValueRef::List(at), ValueRef::Number(index)) = (list, index) else { return None };
        let place = usize::try_from(as_integer(index)? - 1).ok()?;
        if place == self.lists[at as usize].len() {
            return self.push(list, value);
        }
        let slot = self.lists[at as usize].get_mut(place)?;
        if value.is_table() || matches!(value, ValueRef::Nil) {
            return None;
        }
        *slot = value;
        Some(())
    }
}
