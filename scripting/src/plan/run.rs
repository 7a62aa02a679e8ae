//! Runs a plan. Every step here does what Lua 5.1 does, or returns `None`: the plan leaves.

use bytes::Bytes;
use leasehold_resp::Reply;

use super::replay::{Print, Recorded, Replay};
use super::tree::{Call, Each, Expr, For, Operator, Plan, Statement, Unpacked};
use super::value::{ITEM_BYTES, Read, Value, as_integer, read_number, settle};
use crate::budget::Limits;
use crate::number::write_argument;
use crate::{Host, Interrupt, convert};

/// Turns of loops and calls between two questions to the host: as rarely as Lua asks, about.
const STEPS_PER_QUESTION: u64 = 256;
/// Of so many steps more than Lua has done at least as many instructions, wherever they fell.
const STEPS_AHEAD: u64 = 8;
/// Arguments of nearly every command.
pub(super) const ARGUMENTS_USUAL: usize = 8;
/// Arguments of a command.
pub(super) const ARGUMENTS_MAX: usize = 128;
/// Pieces of a text that are joined at once.
pub(super) const PIECES_MAX: usize = 8;
/// Values of one assignment.
pub(super) const ASSIGNED_MAX: usize = 8;
/// Tables one run may make.
const LISTS_MAX: usize = 64;
/// What is kept of the room that runs have needed.
const KEPT_BYTES: usize = 16 << 10;

/// What runs leave to the next one: room.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    registers: Vec<Value>,
    /// The commands that have been run.
    record: Vec<Recorded>,
    text: Vec<u8>,
    lists: Vec<Vec<Value>>,
    end_after: Option<u64>,
}

impl Scratch {
    /// What Lua is run with if the last run has left.
    pub(crate) fn replay<'a>(&'a mut self, host: &'a mut dyn Host) -> Replay<'a> {
        Replay::new(host, &mut self.record, self.end_after)
    }

    /// Whether the host has said to end the script in the last run.
    pub(crate) fn must_end(&self) -> bool {
        self.end_after.is_some()
    }

    fn clear(&mut self) {
        self.record.clear();
        self.text.clear();
        self.text.shrink_to(KEPT_BYTES);
        self.lists.truncate(1);
        self.lists.iter_mut().for_each(|list| list.shrink_to(KEPT_BYTES / size_of::<Value>()));
        self.end_after = None;
    }
}

/// Runs a plan: the reply to the client, or `None` if Lua has to take over.
pub(crate) fn run(
    plan: &Plan,
    scratch: &mut Scratch,
    limits: &Limits,
    keys: &[&[u8]],
    args: &[&[u8]],
    host: &mut dyn Host,
) -> Option<Reply> {
    scratch.clear();
    scratch.registers.clear();
    scratch.registers.resize(plan.registers, Value::Nil);
    let Scratch { registers, record, text, lists, end_after } = scratch;
    let held = Held { literals: &plan.literals, keys, args, record, text };
    let bytes_left = limits.plan_bytes_max.min(limits.memory_bytes_max / 16);
    let calls_max = limits.plan_calls_max;
    let mut run = Run {
        held,
        registers,
        lists,
        lists_used: 0,
        host,
        bytes_left,
        calls_max,
        pace: Pace { steps: 0, steps_max: limits.plan_steps_max, end_after },
    };
    let given = keys.iter().chain(args).map(|text| text.len() + ITEM_BYTES).sum();
    run.spend(given)?;
    match run.block(&plan.body)? {
        Flow::Return(reply) => Some(reply),
        Flow::Next | Flow::Break => Some(Reply::Null),
    }
}

/// Where the values of a run are.
struct Held<'r> {
    literals: &'r [Bytes],
    keys: &'r [&'r [u8]],
    args: &'r [&'r [u8]],
    record: &'r mut Vec<Recorded>,
    text: &'r mut Vec<u8>,
}

impl Held<'_> {
    /// A string's bytes.
    fn bytes(&self, value: Value) -> Option<&[u8]> {
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
    fn shared(&self, value: Value) -> Option<&Bytes> {
        let reply = match value {
            Value::Text(at) => &self.record[at as usize].reply,
            Value::Item { reply, at } => &self.items(reply)[at as usize],
            _ => return None,
        };
        match reply {
            Reply::Bulk(text) | Reply::Simple(text) => Some(text),
            _ => None,
        }
    }

    /// The array a command was answered with.
    fn items(&self, reply: u32) -> &[Reply] {
        match &self.record[reply as usize].reply {
            Reply::Array(items) => items,
            _ => &[],
        }
    }

    /// Lua's `==`.
    fn equal(&self, left: Value, right: Value) -> bool {
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
    fn append(&mut self, value: Value) -> Option<()> {
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

enum Flow {
    Next,
    Break,
    Return(Reply),
}

struct Run<'r> {
    held: Held<'r>,
    registers: &'r mut [Value],
    lists: &'r mut Vec<Vec<Value>>,
    lists_used: usize,
    host: &'r mut dyn Host,
    bytes_left: usize,
    calls_max: usize,
    pace: Pace<'r>,
}

/// How far a run has come.
struct Pace<'r> {
    steps: u64,
    /// What runs for longer is Lua's: while it goes back to where a plan has left, nobody is heard.
    steps_max: u64,
    end_after: &'r mut Option<u64>,
}

impl Pace<'_> {
    /// Counts what Lua takes at least one instruction for, and asks the host from time to time.
    fn step(&mut self, host: &mut dyn Host) -> Option<()> {
        self.steps += 1;
        if !self.steps.is_multiple_of(STEPS_PER_QUESTION) {
            return Some(());
        }
        if host.interrupt() == Interrupt::Kill {
            *self.end_after = Some(self.steps.saturating_sub(STEPS_AHEAD));
            return None;
        }
        (self.steps < self.steps_max).then_some(())
    }
}

// Statements.
impl Run<'_> {
    fn block(&mut self, statements: &[Statement]) -> Option<Flow> {
        for statement in statements {
            match self.statement(statement)? {
                Flow::Next => {}
                flow => return Some(flow),
            }
        }
        Some(Flow::Next)
    }

    fn statement(&mut self, statement: &Statement) -> Option<Flow> {
        match statement {
            Statement::Set(local, value) => {
                let value = self.value(value)?;
                self.registers[usize::from(*local)] = value;
            }
            Statement::SetMany(locals, values) => self.set_many(locals, values)?,
            Statement::Store { list, index, value } => self.store(*list, index, value)?,
            Statement::Insert { list, value } => {
                let (list, value) = (self.value(list)?, self.value(value)?);
                self.push(list, value)?;
            }
            Statement::Run(call) => {
                self.value(call)?;
            }
            Statement::If { arms, otherwise } => {
                for (condition, body) in arms {
                    if self.value(condition)?.is_true() {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            Statement::While { condition, body } => {
                while self.value(condition)?.is_true() {
                    self.step()?;
                    match self.block(body)? {
                        Flow::Next => {}
                        Flow::Break => break,
                        flow => return Some(flow),
                    }
                }
            }
            Statement::For(count) => return self.count(count),
            Statement::Each(each) => return self.each(each),
            Statement::Do(body) => return self.block(body),
            Statement::Break => return Some(Flow::Break),
            Statement::Return(value) => {
                let value = self.value(value)?;
                return Some(Flow::Return(self.answer(value)?));
            }
            Statement::ReturnStatus(text) => {
                let text = self.value(text)?;
                let line = convert::one_line(self.held.bytes(text)?.to_vec());
                return Some(Flow::Return(Reply::Simple(line)));
            }
        }
        Some(Flow::Next)
    }

    fn set_many(&mut self, locals: &[u16], values: &[Expr]) -> Option<()> {
        let mut found = [Value::Nil; ASSIGNED_MAX];
        for (found, value) in found.iter_mut().zip(values) {
            *found = self.value(value)?;
        }
        for (local, value) in locals.iter().zip(found) {
            self.registers[usize::from(*local)] = value;
        }
        Some(())
    }

    fn count(&mut self, count: &For) -> Option<Flow> {
        let from = self.value(&count.from)?;
        let to = self.value(&count.to)?;
        let step = match &count.step {
            Some(step) => self.value(step)?,
            None => Value::Number(1.0),
        };
        let (from, to, step) = (self.number(from)?, self.number(to)?, self.number(step)?);
        let mut at = from - step;
        loop {
            at += step;
            if !(if step > 0.0 { at <= to } else { to <= at }) {
                return Some(Flow::Next);
            }
            self.step()?;
            self.registers[usize::from(count.variable)] = Value::Number(at);
            match self.block(&count.body)? {
                Flow::Next => {}
                Flow::Break => return Some(Flow::Next),
                flow => return Some(flow),
            }
        }
    }

    fn each(&mut self, each: &Each) -> Option<Flow> {
        let list = self.value(&each.list)?;
        if !matches!(list, Value::Keys | Value::Args | Value::Array(_) | Value::List(_)) {
            return None;
        }
        let mut place = 0_usize;
        loop {
            let value = self.item(list, place)?;
            place += 1;
            if matches!(value, Value::Nil) {
                return Some(Flow::Next);
            }
            self.step()?;
            self.registers[usize::from(each.index)] = Value::Number(place as f64);
            self.registers[usize::from(each.value)] = value;
            match self.block(&each.body)? {
                Flow::Next => {}
                Flow::Break => return Some(Flow::Next),
                flow => return Some(flow),
            }
        }
    }

    fn step(&mut self) -> Option<()> {
        self.pace.step(self.host)
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes)?;
        Some(())
    }
}

// Expressions.
impl Run<'_> {
    fn value(&mut self, expr: &Expr) -> Option<Value> {
        Some(match expr {
            Expr::Nil => Value::Nil,
            Expr::Boolean(value) => Value::Boolean(*value),
            Expr::Number(number) => Value::Number(*number),
            Expr::Literal(at) => Value::Literal(*at),
            Expr::Local(at) => self.registers[usize::from(*at)],
            Expr::Keys => Value::Keys,
            Expr::Args => Value::Args,
            Expr::Key(at) if (*at as usize) < self.held.keys.len() => Value::Key(*at),
            Expr::Arg(at) if (*at as usize) < self.held.args.len() => Value::Arg(*at),
            Expr::Key(_) | Expr::Arg(_) => Value::Nil,
            Expr::Call(call) => return self.call(call),
            Expr::Equal(both) => {
                let (left, right) = (self.value(&both.0)?, self.value(&both.1)?);
                Value::Boolean(self.held.equal(left, right))
            }
            Expr::Not(operand) => Value::Boolean(!self.value(operand)?.is_true()),
            Expr::And(both) => match self.value(&both.0)? {
                left if left.is_true() => return self.value(&both.1),
                left => left,
            },
            Expr::Or(both) => match self.value(&both.0)? {
                left if left.is_true() => left,
                _ => return self.value(&both.1),
            },
            Expr::Less(both) => self.compared(both, |left, right| left < right)?,
            Expr::LessOrEqual(both) => self.compared(both, |left, right| left <= right)?,
            Expr::Greater(both) => self.compared(both, |left, right| left > right)?,
            Expr::GreaterOrEqual(both) => self.compared(both, |left, right| left >= right)?,
            other => return self.rarer(other),
        })
    }

    /// The values of which a lock script has few.
    fn rarer(&mut self, expr: &Expr) -> Option<Value> {
        Some(match expr {
            Expr::Index(both) => {
                let (table, index) = (self.value(&both.0)?, self.value(&both.1)?);
                self.index(table, index)?
            }
            Expr::List(items) => self.list(items)?,
            Expr::Concat(pieces) => self.concat(pieces)?,
            Expr::Arithmetic(operator, both) => {
                let (left, right) = (self.value(&both.0)?, self.value(&both.1)?);
                let (left, right) = (self.number(left)?, self.number(right)?);
                Value::Number(arithmetic(*operator, left, right)?)
            }
            Expr::Minus(operand) => Value::Number(-self.evaluated_number(operand)?),
            Expr::Floor(operand) => Value::Number(self.evaluated_number(operand)?.floor()),
            Expr::Largest(operands) => self.chosen(operands, |one, other| one > other)?,
            Expr::Smallest(operands) => self.chosen(operands, |one, other| one < other)?,
            Expr::Length(operand) => {
                let value = self.value(operand)?;
                Value::Number(self.length(value)? as f64)
            }
            Expr::TextLength(operand) => {
                let value = self.value(operand)?;
                Value::Number(self.held.bytes(value)?.len() as f64)
            }
            Expr::Type(names, operand) => Value::Literal(names + self.value(operand)?.type_index()),
            Expr::ToNumber(operand) => {
                let value = self.value(operand)?;
                self.number_of(value)?
            }
            Expr::ToText(operand) => {
                let value = self.value(operand)?;
                self.text_of(value)?
            }
            Expr::Sub(parts) => self.sub(parts)?,
            Expr::Assert(operands) => {
                let mut first = Value::Nil;
                for (at, operand) in operands.iter().enumerate() {
                    let value = self.value(operand)?;
                    first = if at == 0 { value } else { first };
                }
                if !first.is_true() {
                    return None;
                }
                first
            }
            _ => return None,
        })
    }

    /// Strings are compared by the locale's rules, which are not for us to know.
    fn compared(&mut self, both: &(Expr, Expr), holds: fn(f64, f64) -> bool) -> Option<Value> {
        match (self.value(&both.0)?, self.value(&both.1)?) {
            (Value::Number(left), Value::Number(right)) => Some(Value::Boolean(holds(left, right))),
            _ => None,
        }
    }

    /// A number, or a string that is plainly one.
    fn number(&self, value: Value) -> Option<f64> {
        match value {
            Value::Number(number) => Some(number),
            text => match read_number(self.held.bytes(text)?) {
                Read::Number(number) => Some(number),
                Read::Other | Read::Unsure => None,
            },
        }
    }

    fn evaluated_number(&mut self, expr: &Expr) -> Option<f64> {
        let value = self.value(expr)?;
        self.number(value)
    }

    /// `math.max` and `math.min`
    fn chosen(&mut self, operands: &[Expr], better: fn(f64, f64) -> bool) -> Option<Value> {
        let mut best = None;
        for operand in operands {
            let number = self.evaluated_number(operand)?;
            best = match best {
                Some(best) if !better(number, best) => Some(best),
                _ => Some(number),
            };
        }
        best.map(Value::Number)
    }

    fn number_of(&self, value: Value) -> Option<Value> {
        match self.held.bytes(value) {
            Some(text) => match read_number(text) {
                Read::Number(number) => Some(Value::Number(number)),
                Read::Other => Some(Value::Nil),
                Read::Unsure => None,
            },
            None if matches!(value, Value::Number(_)) => Some(value),
            None => Some(Value::Nil),
        }
    }

    fn text_of(&mut self, value: Value) -> Option<Value> {
        let start = self.held.text.len();
        match value {
            Value::Number(_) => self.held.append(value)?,
            Value::Nil => self.held.text.extend_from_slice(b"nil"),
            Value::Boolean(true) => self.held.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.held.text.extend_from_slice(b"false"),
            text if text.is_text() => return Some(text),
            _ => return None,
        }
        self.made(start)
    }

    fn concat(&mut self, pieces: &[Expr]) -> Option<Value> {
        let mut values = [Value::Nil; PIECES_MAX];
        let values = values.get_mut(..pieces.len())?;
        for (value, piece) in values.iter_mut().zip(pieces) {
            *value = self.value(piece)?;
        }
        let start = self.held.text.len();
        for value in values {
            self.held.append(*value)?;
        }
        self.made(start)
    }

    /// The text from `start` on as a value.
    fn made(&mut self, start: usize) -> Option<Value> {
        let len = self.held.text.len() - start;
        self.spend(len)?;
        Some(Value::Made { start: u32::try_from(start).ok()?, len: u32::try_from(len).ok()? })
    }

    /// `string.sub`
    fn sub(&mut self, (text, from, to): &(Expr, Expr, Expr)) -> Option<Value> {
        let (text, from, to) = (self.value(text)?, self.value(from)?, self.value(to)?);
        let (Value::Number(from), Value::Number(to)) = (from, to) else { return None };
        let (from, to) = (as_integer(from)?, as_integer(to)?);
        let len = self.held.bytes(text)?.len() as i64;
        let absolute = |at: i64| if at < 0 { (at + len + 1).max(0) } else { at };
        let (from, to) = (absolute(from).max(1), absolute(to).min(len));
        let start = self.held.text.len();
        if from <= to {
            let bytes = self.held.bytes(text)?[from as usize - 1..to as usize].to_vec();
            self.held.text.extend_from_slice(&bytes);
        }
        self.made(start)
    }
}

// Tables.
impl Run<'_> {
    fn length(&self, value: Value) -> Option<usize> {
        match value {
            Value::Keys => Some(self.held.keys.len()),
            Value::Args => Some(self.held.args.len()),
            Value::Array(at) => Some(self.held.items(at).len()),
            Value::List(at) => Some(self.lists[at as usize].len()),
            text => Some(self.held.bytes(text)?.len()),
        }
    }

    fn index(&self, table: Value, index: Value) -> Option<Value> {
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

    /// The item at `place`, counted from 0.
    fn item(&self, table: Value, place: usize) -> Option<Value> {
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

    fn list(&mut self, items: &[Expr]) -> Option<Value> {
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
    fn push(&mut self, list: Value, value: Value) -> Option<()> {
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

    fn store(&mut self, list: u16, index: &Expr, value: &Expr) -> Option<()> {
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

// Commands and replies.
impl Run<'_> {
    fn call(&mut self, call: &Call) -> Option<Value> {
        if let Some(answered) = self.call_at_hand(call) {
            return answered;
        }
        if call.unpacked.is_none() && call.arguments.len() <= ARGUMENTS_USUAL {
            self.call_with::<ARGUMENTS_USUAL>(call)
        } else {
            self.call_with::<ARGUMENTS_MAX>(call)
        }
    }

    /// Runs a command all of whose arguments are strings that are there already; nearly all are so.
    /// `None` if this one is not, and nothing has been done.
    fn call_at_hand(&mut self, call: &Call) -> Option<Option<Value>> {
        if !call.is_at_hand || self.held.record.len() >= self.calls_max {
            return None;
        }
        let mut argv: [&[u8]; ARGUMENTS_USUAL] = [&[]; ARGUMENTS_USUAL];
        let argv = argv.get_mut(..call.arguments.len())?;
        for (argument, expr) in argv.iter_mut().zip(&call.arguments) {
            *argument = match expr {
                Expr::Literal(at) => &self.held.literals[*at as usize],
                Expr::Key(at) => self.held.keys.get(*at as usize)?,
                Expr::Arg(at) => self.held.args.get(*at as usize)?,
                Expr::Local(at) => self.held.bytes(self.registers[usize::from(*at)])?,
                _ => return None,
            };
        }
        let print = Print::of(argv);
        if self.pace.step(self.host).is_none() {
            return Some(None);
        }
        let reply = ask(self.host, call, argv);
        Some(self.accept(reply, print))
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
        if count == 0 || self.held.record.len() >= self.calls_max {
            return None;
        }
        self.step()?;
        let mut argv: [&[u8]; MAX] = [&[]; MAX];
        for (argument, value) in argv.iter_mut().zip(&values[..count]) {
            *argument = self.held.bytes(*value)?;
        }
        let argv = &argv[..count];
        let print = Print::of(argv);
        let reply = ask(self.host, call, argv);
        // What was made for the arguments has no other name.
        self.held.text.truncate(text_before);
        self.accept(reply, print)
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
                Value::Number(number) => Some(Some(as_integer(number)?)),
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
    fn accept(&mut self, mut reply: Reply, print: Print) -> Option<Value> {
        let at = self.held.record.len() as u32;
        let (value, bytes) = match &reply {
            Reply::Integer(number) => (Some(Value::Number(*number as f64)), 0),
            Reply::Null | Reply::NullArray => (Some(Value::Boolean(false)), 0),
            Reply::Bulk(text) => (Some(Value::Text(at)), text.len()),
            Reply::Simple(text) => (Some(Value::Status(at)), text.len()),
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
        self.held.record.push(Recorded { reply, print });
        self.spend(bytes)?;
        value
    }

    /// What a client is told of a value. A list may hold another one twice, and so on, so that it
    /// is far larger than what it is made of.
    fn answer(&mut self, value: Value) -> Option<Reply> {
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
                answered(self.held.record[at as usize].reply.clone())
            }
            Value::List(at) => {
                let items = std::mem::take(&mut self.lists[at as usize]);
                let replies: Option<Vec<_>> = items.iter().map(|item| self.answer(*item)).collect();
                self.lists[at as usize] = items;
                Reply::Array(replies?)
            }
        })
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

fn arithmetic(operator: Operator, left: f64, right: f64) -> Option<f64> {
    const SMALL: f64 = 2_147_483_648.0;
    let is_small = |number: f64| number.abs() < SMALL && number.trunc() == number;
    Some(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        // Exact at every step, so that no compiler of Lua can have joined two of them.
        Operator::Modulo if is_small(left) && is_small(right) && right != 0.0 => {
            left - (left / right).floor() * right
        }
        Operator::Modulo => return None,
    })
}
