//! A plan's commands: their arguments, their replies as values, and the reply of the plan.

use std::mem::ManuallyDrop;

use lockwheel_resp::Reply;

use super::execute::Run;
use super::replay::RecordedReply;
use super::run_data::RunData;
use super::tree::{CommandCall, Direct, Expr, Operand, Unpacked};
use super::value_ref::{ITEM_BYTES, ValueRef, as_integer, normalize};
use crate::lua_number::write_argument;
use crate::{ShortReply, convert};

/// The usual number of arguments of a command.
const ARGUMENTS_USUAL: usize = 8;
/// The greatest number of arguments of a command.
pub(super) const ARGUMENTS_MAX: usize = 128;

impl Run<'_> {
    #[inline(never)]
    pub(super) fn call(&mut self, call: &CommandCall) -> Option<ValueRef> {
        let Some(direct) = &call.direct else { return self.call_computed(call) };
        match &*direct.operands {
            [a] => self.call_direct::<1, 2>(call, direct, [a]),
            [a, b] => self.call_direct::<2, 3>(call, direct, [a, b]),
            [a, b, c] => self.call_direct::<3, 4>(call, direct, [a, b, c]),
            [a, b, c, d, e] => self.call_direct::<5, 6>(call, direct, [a, b, c, d, e]),
            _ => self.call_computed(call),
        }
    }

    /// Runs a known command with `N - 1` operands that are existing strings. Nearly all calls are
    /// like this.
    #[inline(always)]
    fn call_direct<const OPERANDS: usize, const N: usize>(
        &mut self,
        call: &CommandCall,
        direct: &Direct,
        operands: [&Operand; OPERANDS],
    ) -> Option<ValueRef> {
        let mut argv: [&[u8]; N] = [&direct.name; N];
        for at in 0..OPERANDS {
            match operands[at].text(&self.data, self.registers) {
                Some(text) => argv[at + 1] = text,
                None => return self.call_computed(call),
            }
        }
        self.counter.call(self.data.record, self.host)?;
        // Only a rare reply is put there, and taken out again, so that nothing is left to be freed.
        let mut place = ManuallyDrop::new(Reply::Null);
        let reply = self.host.call_command(direct.command, &argv, &mut place);
        self.accept(reply, &mut place)
    }

    #[inline(never)]
    fn call_computed(&mut self, call: &CommandCall) -> Option<ValueRef> {
        if call.unpacked.is_none() && call.arguments.len() <= ARGUMENTS_USUAL {
            self.call_with::<ARGUMENTS_USUAL>(call)
        } else {
            self.call_with::<ARGUMENTS_MAX>(call)
        }
    }

    fn call_with<const MAX: usize>(&mut self, call: &CommandCall) -> Option<ValueRef> {
        let text_before = self.data.text.len();
        let mut values = [ValueRef::Nil; MAX];
        let mut count = 0;
        for argument in &call.arguments {
            let value = self.value(argument)?;
            *values.get_mut(count)? = self.argument(value)?;
            count += 1;
        }
        if let Some(unpacked) = &call.unpacked {
            let (list, places) = self.unpacked(unpacked)?;
            for place in places {
                let value = self.item(list, place)?;
                *values.get_mut(count)? = self.argument(value)?;
                count += 1;
            }
        }
        if count == 0 {
            return None;
        }
        self.counter.call(self.data.record, self.host)?;
        let mut argv: [&[u8]; MAX] = [&[]; MAX];
        for (argument, value) in argv.iter_mut().zip(&values[..count]) {
            *argument = self.data.bytes(*value)?;
        }
        let argv = &argv[..count];
        let mut place = Reply::Null;
        let reply = match call.command {
            Some(command) => self.host.call_command(command, argv, &mut place),
            None => ShortReply::of(self.host.call(argv), &mut place),
        };
        // Only the arguments used these strings.
        self.data.text.truncate(text_before);
        self.accept(reply, &mut place)
    }

    /// Converts a value to an argument of a command: a string, or a number that becomes one.
    fn argument(&mut self, value: ValueRef) -> Option<ValueRef> {
        match value {
            ValueRef::Number(number) if number.is_finite() => {
                let start = self.data.text.len();
                write_argument(self.data.text, number);
                self.made_string(start)
            }
            text if text.is_text() => Some(text),
            _ => None,
        }
    }

    /// The range of items that `unpack` returns.
    fn unpacked(&mut self, unpacked: &Unpacked) -> Option<(ValueRef, std::ops::Range<usize>)> {
        let list = self.value(&unpacked.list)?;
        if !list.is_table() || matches!(list, ValueRef::Status(_)) {
            return None;
        }
        let mut place = |expr: &Option<Expr>| match expr {
            Some(expr) => match self.value(expr)? {
                // Lua takes the low 32 bits of a number that is no C integer.
                ValueRef::Number(number) => Some(Some(i32::try_from(as_integer(number)?).ok()?)),
                _ => None,
            },
            None => Some(None),
        };
        let (from, to) = (place(&unpacked.from)?, place(&unpacked.to)?);
        let to = match to {
            Some(to) => usize::try_from(to).ok()?,
            None => self.length(list)?,
        };
        let from = usize::try_from(from.unwrap_or(1) - 1).ok()?;
        Some((list, from..to))
    }

    /// Records a reply, which may be in `place`, and returns it as a Lua value.
    #[inline(always)]
    fn accept(&mut self, reply: ShortReply, place: &mut Reply) -> Option<ValueRef> {
        let (recorded, value) = match reply {
            ShortReply::Integer(number) => {
                (RecordedReply::Integer(number), ValueRef::Number(number as f64))
            }
            ShortReply::Null => (RecordedReply::Null, ValueRef::Boolean(false)),
            ShortReply::InPlace => return self.accept_rare(std::mem::replace(place, Reply::Null)),
        };
        self.data.record.commands.push(recorded);
        Some(value)
    }

    #[inline(never)]
    fn accept_rare(&mut self, mut reply: Reply) -> Option<ValueRef> {
        let at = self.data.record.replies.len() as u32;
        let (value, bytes) = match &reply {
            Reply::Bulk(text) => (Some(ValueRef::Text(at)), text.len()),
            Reply::Simple(text) => (Some(ValueRef::Status(at)), text.len()),
            Reply::NullArray => (Some(ValueRef::Boolean(false)), 0),
            _ => {
                let bytes = normalize(&mut reply);
                let value = match &reply {
                    Reply::Array(_) => ValueRef::Array(at),
                    Reply::Integer(number) => ValueRef::Number(*number as f64),
                    _ => ValueRef::Text(at),
                };
                (bytes.map(|_| value), bytes.unwrap_or(0))
            }
        };
        self.data.record.replies.push(reply);
        self.data.record.commands.push(RecordedReply::Stored(at));
        self.spend(bytes)?;
        value
    }

    /// Converts a value to the reply for the client. A list may hold another one twice, and so on,
    /// so that the reply is far larger than the lists.
    pub(super) fn answer(&mut self, value: ValueRef) -> Option<Reply> {
        if value.is_table() && !matches!(value, ValueRef::Status(_)) {
            let items = self.length(value)?;
            self.spend(items.checked_mul(ITEM_BYTES)?)?;
        }
        Some(match value {
            ValueRef::Nil | ValueRef::Boolean(false) => Reply::Null,
            ValueRef::Boolean(true) => Reply::Integer(1),
            ValueRef::Number(number) => Reply::Integer(convert::truncate(number)),
            ValueRef::Literal(at) => Reply::Bulk(self.data.literals[at as usize].clone()),
            ValueRef::Text(_) | ValueRef::Item { .. } => {
                Reply::Bulk(self.data.shared(value)?.clone())
            }
            ValueRef::Key(_) | ValueRef::Arg(_) | ValueRef::Made { .. } => {
                self.spend(self.data.bytes(value)?.len())?;
                Reply::bulk(self.data.bytes(value)?)
            }
            ValueRef::Keys | ValueRef::Args => {
                let count = self.length(value)?;
                let replies: Option<Vec<_>> =
                    (0..count).map(|place| self.answer(self.item(value, place)?)).collect();
                Reply::Array(replies?)
            }
            ValueRef::Status(at) | ValueRef::Array(at) => {
                answered(self.data.record.replies[at as usize].clone())
            }
            ValueRef::List(at) => {
                let count = self.lists[at as usize].len();
                let mut replies = Vec::with_capacity(count);
                for place in 0..count {
                    replies.push(match self.lists[at as usize][place] {
                        ValueRef::Number(number) => Reply::Integer(convert::truncate(number)),
                        item => self.answer(item)?,
                    });
                }
                Reply::Array(replies)
            }
        })
    }
}

impl Operand {
    /// The string of the operand, if it is one.
    #[inline(always)]
    fn text<'h>(self, data: &'h RunData<'_>, registers: &[ValueRef]) -> Option<&'h [u8]> {
        match self {
            Operand::Literal(at) => Some(&data.literals[at as usize]),
            Operand::Key(at) => data.keys.get(at as usize).copied(),
            Operand::Arg(at) => data.args.get(at as usize).copied(),
            rarer => rarer.text_by_local(data, registers),
        }
    }

    #[inline(never)]
    fn text_by_local<'h>(self, data: &'h RunData<'_>, registers: &[ValueRef]) -> Option<&'h [u8]> {
        match self {
            Operand::Local(at) => data.bytes(registers[usize::from(at)]),
            Operand::KeyAt(place) => data.keys.get(place.of(registers)?).copied(),
            Operand::ArgAt(place) => data.args.get(place.of(registers)?).copied(),
            _ => None,
        }
    }
}

/// Converts a reply that went to a script and is returned by it.
fn answered(reply: Reply) -> Reply {
    match reply {
        Reply::Integer(number) => Reply::Integer(convert::truncate(number as f64)),
        Reply::NullArray => Reply::Null,
        Reply::Simple(line) if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => {
            Reply::Simple(convert::one_line(line.to_vec()))
        }
        Reply::Array(items) => Reply::Array(items.into_iter().map(answered).collect()),
        other => other,
    }
}
