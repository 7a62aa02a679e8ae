//! A plan's commands: their arguments, their replies as values, and its own reply.

use lockwheel_resp::Reply;

use super::held::Held;
use super::replay::Told;
use super::run::Run;
use super::tree::{Call, Direct, Expr, Operand, Unpacked};
use super::value::{ITEM_BYTES, Value, as_integer, settle};
use crate::lua_number::write_argument;
use crate::{Host, convert};

/// Arguments of nearly every command.
const ARGUMENTS_USUAL: usize = 8;
/// Arguments of a command.
pub(super) const ARGUMENTS_MAX: usize = 128;

impl Run<'_> {
    #[inline(never)]
    pub(super) fn call(&mut self, call: &Call) -> Option<Value> {
        let Some(direct) = &call.direct else { return self.call_computed(call) };
        match &*direct.operands {
            [a] => self.call_direct::<1, 2>(call, direct, [a]),
            [a, b] => self.call_direct::<2, 3>(call, direct, [a, b]),
            [a, b, c] => self.call_direct::<3, 4>(call, direct, [a, b, c]),
            [a, b, c, d, e] => self.call_direct::<5, 6>(call, direct, [a, b, c, d, e]),
            _ => self.call_computed(call),
        }
    }

    /// Runs a known command whose `N - 1` operands are strings that are there already; nearly all
    /// are so.
    #[inline(always)]
    fn call_direct<const OPERANDS: usize, const N: usize>(
        &mut self,
        call: &Call,
        direct: &Direct,
        operands: [&Operand; OPERANDS],
    ) -> Option<Value> {
        let mut argv: [&[u8]; N] = [&direct.name; N];
        for at in 0..OPERANDS {
            match operands[at].text(&self.held, self.registers) {
                Some(text) => argv[at + 1] = text,
                None => return self.call_computed(call),
            }
        }
        self.pace.call(self.held.record, self.host)?;
        let reply = self.host.call_command(direct.command, &argv);
        self.accept(reply)
    }

    #[inline(never)]
    fn call_computed(&mut self, call: &Call) -> Option<Value> {
        if call.unpacked.is_none() && call.arguments.len() <= ARGUMENTS_USUAL {
            self.call_with::<ARGUMENTS_USUAL>(call)
        } else {
            self.call_with::<ARGUMENTS_MAX>(call)
        }
    }

    fn call_with<const MAX: usize>(&mut self, call: &Call) -> Option<Value> {
        let text_before = self.held.text.len();
        let mut values = [Value::Nil; MAX];
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
        self.pace.call(self.held.record, self.host)?;
        let mut argv: [&[u8]; MAX] = [&[]; MAX];
        for (argument, value) in argv.iter_mut().zip(&values[..count]) {
            *argument = self.held.bytes(*value)?;
        }
        let argv = &argv[..count];
        let reply = ask(self.host, call, argv);
        // What was made for the arguments has no other name.
        self.held.text.truncate(text_before);
        self.accept(reply)
    }

    /// A value as an argument of a command: a string, or a number that becomes one.
    fn argument(&mut self, value: Value) -> Option<Value> {
        match value {
            Value::Number(number) if number.is_finite() => {
                let start = self.held.text.len();
                write_argument(self.held.text, number);
                self.made(start)
            }
            text if text.is_text() => Some(text),
            _ => None,
        }
    }

    /// The places of the items that `unpack` stands for.
    fn unpacked(&mut self, unpacked: &Unpacked) -> Option<(Value, std::ops::Range<usize>)> {
        let list = self.value(&unpacked.list)?;
        if !list.is_table() || matches!(list, Value::Status(_)) {
            return None;
        }
        let mut place = |expr: &Option<Expr>| match expr {
            Some(expr) => match self.value(expr)? {
                // Lua takes the low 32 bits of what is no C integer.
                Value::Number(number) => Some(Some(i32::try_from(as_integer(number)?).ok()?)),
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

    /// Keeps a reply and gives the value it is in Lua.
    #[inline(always)]
    fn accept(&mut self, reply: Reply) -> Option<Value> {
        let (told, value) = match reply {
            Reply::Integer(number) => (Told::Integer(number), Value::Number(number as f64)),
            Reply::Null => (Told::Null, Value::Boolean(false)),
            _ => return self.accept_rarer(reply),
        };
        // There is nothing in it to be freed, which is not seen from here.
        std::mem::forget(reply);
        self.held.record.commands.push(told);
        Some(value)
    }

    #[inline(never)]
    fn accept_rarer(&mut self, mut reply: Reply) -> Option<Value> {
        let at = self.held.record.replies.len() as u32;
        let (value, bytes) = match &reply {
            Reply::Bulk(text) => (Some(Value::Text(at)), text.len()),
            Reply::Simple(text) => (Some(Value::Status(at)), text.len()),
            Reply::NullArray => (Some(Value::Boolean(false)), 0),
            _ => {
                let bytes = settle(&mut reply);
                let value = match &reply {
                    Reply::Array(_) => Value::Array(at),
                    Reply::Integer(number) => Value::Number(*number as f64),
                    _ => Value::Text(at),
                };
                (bytes.map(|_| value), bytes.unwrap_or(0))
            }
        };
        self.held.record.replies.push(reply);
        self.held.record.commands.push(Told::More(at));
        self.spend(bytes)?;
        value
    }

    /// What a client is told of a value. A list may hold another one twice, and so on, so that it
    /// is far larger than what it is made of.
    pub(super) fn answer(&mut self, value: Value) -> Option<Reply> {
        if value.is_table() && !matches!(value, Value::Status(_)) {
            let items = self.length(value)?;
            self.spend(items.checked_mul(ITEM_BYTES)?)?;
        }
        Some(match value {
            Value::Nil | Value::Boolean(false) => Reply::Null,
            Value::Boolean(true) => Reply::Integer(1),
            Value::Number(number) => Reply::Integer(convert::truncate(number)),
            Value::Literal(at) => Reply::Bulk(self.held.literals[at as usize].clone()),
            Value::Text(_) | Value::Item { .. } => Reply::Bulk(self.held.shared(value)?.clone()),
            Value::Key(_) | Value::Arg(_) | Value::Made { .. } => {
                self.spend(self.held.bytes(value)?.len())?;
                Reply::bulk(self.held.bytes(value)?)
            }
            Value::Keys | Value::Args => {
                let count = self.length(value)?;
                let replies: Option<Vec<_>> =
                    (0..count).map(|place| self.answer(self.item(value, place)?)).collect();
                Reply::Array(replies?)
            }
            Value::Status(at) | Value::Array(at) => {
                answered(self.held.record.replies[at as usize].clone())
            }
            Value::List(at) => {
                let count = self.lists[at as usize].len();
                let mut replies = Vec::with_capacity(count);
                for place in 0..count {
                    replies.push(match self.lists[at as usize][place] {
                        Value::Number(number) => Reply::Integer(convert::truncate(number)),
                        item => self.answer(item)?,
                    });
                }
                Reply::Array(replies)
            }
        })
    }
}

impl Operand {
    /// The string it stands for, if it is one.
    #[inline(always)]
    fn text<'h>(self, held: &'h Held<'_>, registers: &[Value]) -> Option<&'h [u8]> {
        match self {
            Operand::Literal(at) => Some(&held.literals[at as usize]),
            Operand::Key(at) => held.keys.get(at as usize).copied(),
            Operand::Arg(at) => held.args.get(at as usize).copied(),
            rarer => rarer.text_by_local(held, registers),
        }
    }

    #[inline(never)]
    fn text_by_local<'h>(self, held: &'h Held<'_>, registers: &[Value]) -> Option<&'h [u8]> {
        match self {
            Operand::Local(at) => held.bytes(registers[usize::from(at)]),
            Operand::KeyAt(place) => held.keys.get(place.of(registers)?).copied(),
            Operand::ArgAt(place) => held.args.get(place.of(registers)?).copied(),
            _ => None,
        }
    }
}

fn ask(host: &mut dyn Host, call: &Call, argv: &[&[u8]]) -> Reply {
    match call.command {
        Some(command) => host.call_command(command, argv),
        None => host.call(argv),
    }
}

/// A reply that went to a script and comes back.
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
