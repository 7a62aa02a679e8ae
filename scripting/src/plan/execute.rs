//! Runs a plan. Every step does the same as Lua 5.1 or returns `None`, which means that the plan
//! leaves.

use lockwheel_resp::Reply;

use super::replay::{ArgumentCollector, Arguments, CallRecord, Replay};
use super::run_data::RunData;
use super::tree::{Each, Expr, For, Operator, Plan, Statement};
use super::value_ref::{ITEM_BYTES, ParsedNumber, ValueRef, as_integer, read_number};
use crate::limits::Limits;
use crate::{Host, Interrupt, convert};

/// Loop iterations and calls between two polls of the host: about as rare as the polls of Lua.
const STEPS_PER_POLL: u32 = 256;
/// Number of steps by which a plan can be ahead of Lua's instructions: after `n` steps, Lua has
/// executed at least `n - STEPS_AHEAD`, wherever the steps fell.
const STEPS_AHEAD: u64 = 8;
/// Polls of Lua for a step of a plan, at most: the tokens of the longest script are less than twice
/// as many instructions as Lua runs between eight polls.
const POLLS_PER_STEP: u64 = 16;
/// Pieces of a string that are joined at once.
pub(super) const PIECES_MAX: usize = 8;
/// Values of one assignment.
pub(super) const ASSIGNED_MAX: usize = 8;
/// The capacity of the buffers that is kept between runs.
const KEPT_BYTES: usize = 16 << 10;

/// Buffers that are used again by the next run.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    registers: Vec<ValueRef>,
    /// The commands that have been run.
    record: CallRecord,
    text: Vec<u8>,
    lists: Vec<Vec<ValueRef>>,
    end_after: Option<u64>,
}

impl Scratch {
    /// The host for Lua if the last run, of this plan with these keys and arguments, has left.
    pub(crate) fn replay<'a>(
        &'a mut self,
        plan: &Plan,
        limits: &Limits,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &'a mut dyn Host,
    ) -> Replay<'a> {
        let calls = self.calls(plan, limits, keys, args);
        Replay::new(host, &mut self.record, calls, self.end_after)
    }

    /// The host for Lua if the last run, of this plan with these keys and arguments, has come to
    /// its end.
    pub(crate) fn check<'a>(
        &'a mut self,
        plan: &Plan,
        limits: &Limits,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &'a mut dyn Host,
    ) -> Replay<'a> {
        let calls = self.calls(plan, limits, keys, args);
        let polls_max = (limits.plan_steps_max + 1).saturating_mul(POLLS_PER_STEP);
        Replay::for_check(host, &mut self.record, calls, polls_max)
    }

    /// The commands that the last run has called.
    fn calls(
        &self,
        plan: &Plan,
        limits: &Limits,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Vec<Arguments> {
        let mut collector = ArgumentCollector::new(&self.record);
        // The limits are those of the first run, and normalised replies never take more than they
        // did.
        run(plan, &mut Scratch::default(), limits, keys, args, &mut collector);
        collector.calls
    }

    /// Whether the host has ended the script in the last run.
    pub(crate) fn must_end(&self) -> bool {
        self.end_after.is_some()
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.record.clear();
        self.text.clear();
        if self.text.capacity() > KEPT_BYTES || !self.lists.is_empty() {
            self.shrink();
        }
        self.end_after = None;
    }

    #[inline(never)]
    fn shrink(&mut self) {
        const VALUES_KEPT: usize = KEPT_BYTES / size_of::<ValueRef>();
        self.text.shrink_to(KEPT_BYTES);
        self.lists.truncate(1);
        if let Some(list) = self.lists.first_mut() {
            list.shrink_to(VALUES_KEPT);
        }
    }
}

/// Runs a plan. Returns the reply for the client, or `None` if Lua has to take over.
#[inline(always)]
pub(crate) fn run(
    plan: &Plan,
    scratch: &mut Scratch,
    limits: &Limits,
    keys: &[&[u8]],
    args: &[&[u8]],
    host: &mut dyn Host,
) -> Option<Reply> {
    scratch.clear();
    // The values of the last run are never read: every local is assigned first.
    if scratch.registers.len() < plan.registers {
        scratch.registers.resize(plan.registers, ValueRef::Nil);
    }
    let Scratch { registers, record, text, lists, end_after } = scratch;
    let data = RunData { literals: &plan.literals, keys, args, record, text };
    let mut bytes_left = limits.plan_bytes_max.min(limits.memory_bytes_max / 16);
    for given in [keys, args] {
        for text in given {
            bytes_left = bytes_left.checked_sub(text.len().saturating_add(ITEM_BYTES))?;
        }
    }
    let mut run = Run {
        data,
        registers,
        lists,
        lists_used: 0,
        host,
        bytes_left,
        counter: StepCounter { steps: 0, steps_until_poll: STEPS_PER_POLL - 1, limits, end_after },
        returned: ValueRef::Nil,
    };
    match run.block(&plan.body)? {
        Flow::Next | Flow::Break => Some(Reply::Null),
        Flow::Return => match run.returned {
            ValueRef::Nil => Some(Reply::Null),
            ValueRef::Number(number) => Some(Reply::Integer(convert::truncate(number))),
            value => run.answer(value),
        },
        Flow::ReturnStatus => {
            let text = run.data.bytes(run.returned)?;
            Some(Reply::Simple(convert::c_line(text)))
        }
    }
}

/// Where to go on after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    /// Return the value.
    Return,
    /// Return the value as the text of a status.
    ReturnStatus,
}

pub(super) struct Run<'r> {
    pub(super) data: RunData<'r>,
    pub(super) registers: &'r mut [ValueRef],
    pub(super) lists: &'r mut Vec<Vec<ValueRef>>,
    pub(super) lists_used: usize,
    pub(super) host: &'r mut dyn Host,
    bytes_left: usize,
    pub(super) counter: StepCounter<'r>,
    returned: ValueRef,
}

/// Counts the steps of a run.
pub(super) struct StepCounter<'r> {
    /// The steps up to the latest poll.
    steps: u64,
    steps_until_poll: u32,
    limits: &'r Limits,
    end_after: &'r mut Option<u64>,
}

impl StepCounter<'_> {
    /// Counts a step for which Lua needs at least one instruction, and polls the host regularly.
    /// Scripts that run longer are left to Lua: while Lua catches up with the plan, no other client
    /// is served.
    #[inline(always)]
    pub(super) fn step(&mut self, host: &mut dyn Host) -> Option<()> {
        match self.steps_until_poll.checked_sub(1) {
            Some(left) => self.steps_until_poll = left,
            None => self.poll(host)?,
        }
        Some(())
    }

    /// Does the same as [`StepCounter::step`] for a command. Leaves if the limit of commands is
    /// reached.
    #[inline(always)]
    pub(super) fn call(&mut self, record: &CallRecord, host: &mut dyn Host) -> Option<()> {
        (record.commands.len() < self.limits.plan_calls_max).then(|| self.step(host))?
    }

    #[cold]
    fn poll(&mut self, host: &mut dyn Host) -> Option<()> {
        self.steps += u64::from(STEPS_PER_POLL);
        self.steps_until_poll = STEPS_PER_POLL - 1;
        if host.interrupt() == Interrupt::Kill {
            *self.end_after = Some(self.steps.saturating_sub(STEPS_AHEAD));
            return None;
        }
        (self.steps < self.limits.plan_steps_max).then_some(())
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
            Statement::Evaluate(call) => {
                self.value(call)?;
            }
            Statement::If { arms, otherwise } => {
                for (condition, body) in arms {
                    if self.truth(condition)? {
                        return self.block(body);
                    }
                }
                if !otherwise.is_empty() {
                    return self.block(otherwise);
                }
            }
            Statement::While { condition, body } => {
                while self.truth(condition)? {
                    self.step()?;
                    match self.block(body)? {
                        Flow::Next => {}
                        Flow::Break => break,
                        flow => return Some(flow),
                    }
                }
            }
            Statement::For(count) => return self.numeric_for(count),
            Statement::Each(each) => return self.ipairs_for(each),
            Statement::Do(body) => return self.block(body),
            Statement::Break => return Some(Flow::Break),
            Statement::Return(value) => {
                self.returned = self.value(value)?;
                return Some(Flow::Return);
            }
            Statement::ReturnStatus(text) => {
                self.returned = self.value(text)?;
                return Some(Flow::ReturnStatus);
            }
        }
        Some(Flow::Next)
    }

    fn set_many(&mut self, locals: &[u16], values: &[Expr]) -> Option<()> {
        let mut found = [ValueRef::Nil; ASSIGNED_MAX];
        for (found, value) in found.iter_mut().zip(values) {
            *found = self.value(value)?;
        }
        for (local, value) in locals.iter().zip(found) {
            self.registers[usize::from(*local)] = value;
        }
        Some(())
    }

    fn numeric_for(&mut self, count: &For) -> Option<Flow> {
        let from = self.value(&count.from)?;
        let to = self.value(&count.to)?;
        let step = match &count.step {
            Some(step) => self.value(step)?,
            None => ValueRef::Number(1.0),
        };
        let (from, to, step) = (self.number(from)?, self.number(to)?, self.number(step)?);
        let mut at = from - step;
        loop {
            at += step;
            if !(if step > 0.0 { at <= to } else { to <= at }) {
                return Some(Flow::Next);
            }
            self.step()?;
            self.registers[usize::from(count.variable)] = ValueRef::Number(at);
            match self.block(&count.body)? {
                Flow::Next => {}
                Flow::Break => return Some(Flow::Next),
                flow => return Some(flow),
            }
        }
    }

    fn ipairs_for(&mut self, each: &Each) -> Option<Flow> {
        let list = self.value(&each.list)?;
        if !matches!(list, ValueRef::Keys | ValueRef::Args | ValueRef::Array(_) | ValueRef::List(_))
        {
            return None;
        }
        let mut place = 0_usize;
        loop {
            let value = self.item(list, place)?;
            place += 1;
            if matches!(value, ValueRef::Nil) {
                return Some(Flow::Next);
            }
            self.step()?;
            self.registers[usize::from(each.index)] = ValueRef::Number(place as f64);
            self.registers[usize::from(each.value)] = value;
            match self.block(&each.body)? {
                Flow::Next => {}
                Flow::Break => return Some(Flow::Next),
                flow => return Some(flow),
            }
        }
    }

    pub(super) fn step(&mut self) -> Option<()> {
        self.counter.step(self.host)
    }

    pub(super) fn spend(&mut self, bytes: usize) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes)?;
        Some(())
    }
}

// Expressions.
impl Run<'_> {
    #[inline(always)]
    pub(super) fn value(&mut self, expr: &Expr) -> Option<ValueRef> {
        match expr {
            Expr::Call(call) => self.call(call),
            Expr::Number(number) => Some(ValueRef::Number(*number)),
            Expr::Local(at) => Some(self.registers[usize::from(*at)]),
            Expr::Nil => Some(ValueRef::Nil),
            other => self.other_value(other),
        }
    }

    fn other_value(&mut self, expr: &Expr) -> Option<ValueRef> {
        Some(match expr {
            Expr::Boolean(value) => ValueRef::Boolean(*value),
            Expr::Literal(at) => ValueRef::Literal(*at),
            Expr::Keys => ValueRef::Keys,
            Expr::Args => ValueRef::Args,
            Expr::Key(at) if (*at as usize) < self.data.keys.len() => ValueRef::Key(*at),
            Expr::Arg(at) if (*at as usize) < self.data.args.len() => ValueRef::Arg(*at),
            Expr::Key(_) | Expr::Arg(_) => ValueRef::Nil,
            Expr::KeyAt(place) => return self.item_at(ValueRef::Keys, *place),
            Expr::ArgAt(place) => return self.item_at(ValueRef::Args, *place),
            Expr::And(both) => match self.value(&both.0)? {
                left if left.is_true() => return self.value(&both.1),
                left => left,
            },
            Expr::Or(both) => match self.value(&both.0)? {
                left if left.is_true() => left,
                _ => return self.value(&both.1),
            },
            Expr::Not(_)
            | Expr::Equal(_)
            | Expr::Less(_)
            | Expr::LessOrEqual(_)
            | Expr::Greater(_)
            | Expr::GreaterOrEqual(_) => ValueRef::Boolean(self.truth(expr)?),
            other => return self.rare_value(other),
        })
    }

    /// The values that are rare in lock scripts.
    fn rare_value(&mut self, expr: &Expr) -> Option<ValueRef> {
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
                ValueRef::Number(arithmetic(*operator, left, right)?)
            }
            Expr::Minus(operand) => ValueRef::Number(-self.evaluated_number(operand)?),
            Expr::Floor(operand) => ValueRef::Number(self.evaluated_number(operand)?.floor()),
            Expr::Largest(operands) => self.extremum(operands, |one, other| one > other)?,
            Expr::Smallest(operands) => self.extremum(operands, |one, other| one < other)?,
            Expr::Length(operand) => {
                let value = self.value(operand)?;
                ValueRef::Number(self.length(value)? as f64)
            }
            Expr::TextLength(operand) => {
                let value = self.value(operand)?;
                ValueRef::Number(self.data.bytes(value)?.len() as f64)
            }
            Expr::Type(names, operand) => {
                ValueRef::Literal(names + self.value(operand)?.type_index())
            }
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
                let mut first = ValueRef::Nil;
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

    /// Whether a condition is true.
    fn truth(&mut self, condition: &Expr) -> Option<bool> {
        match condition {
            Expr::Equal(both) => match (self.value(&both.0)?, self.value(&both.1)?) {
                (ValueRef::Number(left), ValueRef::Number(right)) => Some(left == right),
                (left, right) => Some(self.data.equal(left, right)),
            },
            Expr::Not(operand) => Some(!self.truth(operand)?),
            Expr::And(both) => Some(self.truth(&both.0)? && self.truth(&both.1)?),
            Expr::Or(both) => Some(self.truth(&both.0)? || self.truth(&both.1)?),
            Expr::Less(both) => self.compared(both, |left, right| left < right),
            Expr::LessOrEqual(both) => self.compared(both, |left, right| left <= right),
            Expr::Greater(both) => self.compared(both, |left, right| left > right),
            Expr::GreaterOrEqual(both) => self.compared(both, |left, right| left >= right),
            other => Some(self.value(other)?.is_true()),
        }
    }

    /// Strings are compared by the rules of the locale, which are left to Lua.
    #[inline(always)]
    fn compared(
        &mut self,
        both: &(Expr, Expr),
        holds: impl FnOnce(f64, f64) -> bool,
    ) -> Option<bool> {
        match (self.value(&both.0)?, self.value(&both.1)?) {
            (ValueRef::Number(left), ValueRef::Number(right)) => Some(holds(left, right)),
            _ => None,
        }
    }

    /// A number, or a string that is plainly a number.
    pub(super) fn number(&self, value: ValueRef) -> Option<f64> {
        match value {
            ValueRef::Number(number) => Some(number),
            text => match read_number(self.data.bytes(text)?) {
                ParsedNumber::Number(number) => Some(number),
                ParsedNumber::Other | ParsedNumber::Unsure => None,
            },
        }
    }

    fn evaluated_number(&mut self, expr: &Expr) -> Option<f64> {
        let value = self.value(expr)?;
        self.number(value)
    }

    /// `math.max` and `math.min`
    fn extremum(&mut self, operands: &[Expr], better: fn(f64, f64) -> bool) -> Option<ValueRef> {
        let mut best = None;
        for operand in operands {
            let number = self.evaluated_number(operand)?;
            best = match best {
                Some(best) if !better(number, best) => Some(best),
                _ => Some(number),
            };
        }
        best.map(ValueRef::Number)
    }

    fn number_of(&self, value: ValueRef) -> Option<ValueRef> {
        match self.data.bytes(value) {
            Some(text) => match read_number(text) {
                ParsedNumber::Number(number) => Some(ValueRef::Number(number)),
                ParsedNumber::Other => Some(ValueRef::Nil),
                ParsedNumber::Unsure => None,
            },
            None if matches!(value, ValueRef::Number(_)) => Some(value),
            None => Some(ValueRef::Nil),
        }
    }

    fn text_of(&mut self, value: ValueRef) -> Option<ValueRef> {
        let start = self.data.text.len();
        match value {
            ValueRef::Number(_) => self.data.append(value)?,
            ValueRef::Nil => self.data.text.extend_from_slice(b"nil"),
            ValueRef::Boolean(true) => self.data.text.extend_from_slice(b"true"),
            ValueRef::Boolean(false) => self.data.text.extend_from_slice(b"false"),
            text if text.is_text() => return Some(text),
            _ => return None,
        }
        self.made_string(start)
    }

    fn concat(&mut self, pieces: &[Expr]) -> Option<ValueRef> {
        let mut values = [ValueRef::Nil; PIECES_MAX];
        let values = values.get_mut(..pieces.len())?;
        for (value, piece) in values.iter_mut().zip(pieces) {
            *value = self.value(piece)?;
        }
        let start = self.data.text.len();
        for value in values {
            self.data.append(*value)?;
        }
        self.made_string(start)
    }

    /// The string from `start` on as a value.
    pub(super) fn made_string(&mut self, start: usize) -> Option<ValueRef> {
        let len = self.data.text.len() - start;
        self.spend(len)?;
        Some(ValueRef::Made { start: u32::try_from(start).ok()?, len: u32::try_from(len).ok()? })
    }

    /// `string.sub`
    fn sub(&mut self, (text, from, to): &(Expr, Expr, Expr)) -> Option<ValueRef> {
        let (text, from, to) = (self.value(text)?, self.value(from)?, self.value(to)?);
        let (ValueRef::Number(from), ValueRef::Number(to)) = (from, to) else { return None };
        let (from, to) = (as_integer(from)?, as_integer(to)?);
        let len = self.data.bytes(text)?.len() as i64;
        let absolute = |at: i64| if at < 0 { (at + len + 1).max(0) } else { at };
        let (from, to) = (absolute(from).max(1), absolute(to).min(len));
        let start = self.data.text.len();
        if from <= to {
            let bytes = self.data.bytes(text)?[from as usize - 1..to as usize].to_vec();
            self.data.text.extend_from_slice(&bytes);
        }
        self.made_string(start)
    }
}

/// The result of an operator, if it is certain to the last bit.
pub(super) fn arithmetic(operator: Operator, left: f64, right: f64) -> Option<f64> {
    const SMALL: f64 = 2_147_483_648.0;
    let is_small = |number: f64| number.abs() < SMALL && number.trunc() == number;
    Some(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        // Exact at every step, so that no compiler of Lua can have fused two of them with another
        // result.
        Operator::Modulo if is_small(left) && is_small(right) && right != 0.0 => {
            left - (left / right).floor() * right
        }
        Operator::Modulo => return None,
    })
}
