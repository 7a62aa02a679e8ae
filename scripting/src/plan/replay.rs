//! What Lua is run with when a plan has left: the commands that have been run are answered from the
//! record. Knows neither plans nor Lua.
//!
//! Lua must call what the plan has called, argument for argument. If it does not, one of the two
//! has understood the script wrongly. The commands that the plan has run stay as they are; Lua runs
//! no further one, so that the effects are those of one tier.

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use crate::{CommandId, Host, Interrupt, LogLevel};

/// The commands that a run has called, by their replies.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) commands: Vec<Told>,
    /// Those that are more than a word, for [`Told::More`].
    pub(super) replies: Vec<Reply>,
}

impl Record {
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.replies.clear();
    }
}

/// The reply of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Integer(i64),
    Null,
    /// The reply at this place.
    More(u32),
}

/// The name and the arguments of a command.
type Call = Vec<Bytes>;

/// A host that a plan is run with once more, to learn the arguments of the commands it has called:
/// the first run keeps none, since most plans never leave. Answers what was answered before; a
/// command that the first run has not called fails, so that the plan leaves again.
pub(super) struct Rehearsal<'a> {
    record: &'a Record,
    pub(super) calls: Vec<Call>,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn new(record: &'a Record) -> Rehearsal<'a> {
        Rehearsal { record, calls: Vec::with_capacity(record.commands.len()) }
    }
}

impl Host for Rehearsal<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let Some(told) = self.record.commands.get(self.calls.len()) else {
            return Reply::error("ERR not called before");
        };
        self.calls.push(argv.iter().map(|argument| Bytes::copy_from_slice(argument)).collect());
        match *told {
            Told::Integer(number) => Reply::Integer(number),
            Told::Null => Reply::Null,
            Told::More(at) => self.record.replies[at as usize].clone(),
        }
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        Interrupt::Continue
    }
}

/// A host that answers from the record first.
pub(crate) struct Replay<'a> {
    host: &'a mut dyn Host,
    record: &'a mut Record,
    /// What the plan has called.
    calls: Vec<Call>,
    /// How many of them Lua has called.
    told: usize,
    /// The host has said to end the script. What is left of these is the questions until Lua is
    /// certainly not past the place where the plan was.
    end_after: Option<u64>,
    was_killed: bool,
    mismatch: Option<Mismatch>,
}

/// Where Lua has not done what the plan had done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// How many commands Lua had called as the plan had.
    pub(crate) agreed: usize,
    /// The name of the plan's next command, if it had one.
    pub(crate) planned: Option<Bytes>,
    /// The name of Lua's next command, if it had one.
    pub(crate) called: Option<Bytes>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        host: &'a mut dyn Host,
        record: &'a mut Record,
        calls: Vec<Call>,
        end_after: Option<u64>,
    ) -> Replay<'a> {
        Replay { host, record, calls, told: 0, end_after, was_killed: false, mismatch: None }
    }

    /// Whether Lua has called what was called before, all of it.
    fn is_over(&self) -> bool {
        self.told == self.record.commands.len()
    }

    /// What Lua has done otherwise than the plan, now that it has ended. A script that was killed
    /// on the way has done nothing wrong.
    pub(crate) fn finish(mut self) -> Option<Mismatch> {
        if !self.is_over() && !self.was_killed {
            self.note_mismatch(None);
        }
        self.mismatch
    }

    fn note_mismatch(&mut self, called: Option<&[u8]>) {
        if self.mismatch.is_none() {
            let planned = self.calls.get(self.told).and_then(|call| call.first()).cloned();
            let called = called.map(Bytes::copy_from_slice);
            self.mismatch = Some(Mismatch { agreed: self.told, planned, called });
        }
    }

    /// The reply of the next command, if it has been run, or an error for one that may not be run.
    fn recorded(&mut self, argv: &[&[u8]]) -> Option<Reply> {
        if self.mismatch.is_none() && self.is_over() {
            return None;
        }
        if self.calls.get(self.told).is_none_or(|call| call != argv) {
            self.note_mismatch(argv.first().copied());
        }
        if self.mismatch.is_some() {
            return Some(Reply::error(DISAGREEMENT));
        }
        let told = self.record.commands[self.told];
        self.told += 1;
        Some(match told {
            Told::Integer(number) => Reply::Integer(number),
            Told::Null => Reply::Null,
            Told::More(at) => std::mem::replace(&mut self.record.replies[at as usize], Reply::Null),
        })
    }
}

/// The error that the client of such a script gets.
pub(crate) const DISAGREEMENT: &str = "ERR Internal error: the fast path and Lua disagree on this \
    script. What it has changed so far stays. It is run by Lua alone from now on";

impl Host for Replay<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        self.recorded(argv).unwrap_or_else(|| self.host.call(argv))
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        self.host.command(name, arguments)
    }

    fn call_command(&mut self, command: CommandId, argv: &[&[u8]]) -> Reply {
        self.recorded(argv).unwrap_or_else(|| self.host.call_command(command, argv))
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.host.set_protocol(protocol);
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.host.log(level, message);
    }

    fn interrupt(&mut self) -> Interrupt {
        if self.mismatch.is_some() {
            return Interrupt::Kill;
        }
        let is_over = self.is_over();
        let answer = match &mut self.end_after {
            None => self.host.interrupt(),
            Some(0) if is_over => Interrupt::Kill,
            Some(left) => {
                *left = left.saturating_sub(1);
                Interrupt::Continue
            }
        };
        self.was_killed |= answer == Interrupt::Kill;
        answer
    }
}
