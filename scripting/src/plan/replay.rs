//! The host for Lua after a plan: the commands that have been run get their replies from the
//! record. Independent of plans and of Lua.
//!
//! Lua must make the same calls as the plan, argument for argument. If it does not, the plan is
//! wrong. The effects of the plan's commands stay; Lua runs no further command, so that all effects
//! come from one tier.
//!
//! If the plan has left, Lua goes on with commands of its own. If the plan has run to its end, Lua
//! only checks it, and must end after the same calls.

use std::fmt;

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use crate::{CommandId, Host, Interrupt, LogLevel, ShortReply};

/// The replies of the commands that a run has called.
#[derive(Debug, Default)]
pub(super) struct CallRecord {
    pub(super) commands: Vec<RecordedReply>,
    /// The replies that do not fit into a word, for [`RecordedReply::Stored`].
    pub(super) replies: Vec<Reply>,
}

impl CallRecord {
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.replies.clear();
    }
}

/// The reply of a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordedReply {
    Integer(i64),
    Null,
    /// The reply at this index of [`CallRecord::replies`].
    Stored(u32),
}

/// The name and the arguments of a command.
pub(super) type Arguments = Vec<Bytes>;

/// A host with which a plan runs once more, to collect the arguments of the commands it has called:
/// the first run keeps none, because most plans never leave. It gives the recorded replies. A
/// command that the first run has not called fails, so that the plan leaves again.
pub(super) struct ArgumentCollector<'a> {
    record: &'a CallRecord,
    pub(super) calls: Vec<Arguments>,
}

impl<'a> ArgumentCollector<'a> {
    pub(super) fn new(record: &'a CallRecord) -> ArgumentCollector<'a> {
        ArgumentCollector { record, calls: Vec::with_capacity(record.commands.len()) }
    }
}

impl Host for ArgumentCollector<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        let Some(recorded) = self.record.commands.get(self.calls.len()) else {
            return Reply::error("ERR not called before");
        };
        self.calls.push(argv.iter().map(|argument| Bytes::copy_from_slice(argument)).collect());
        match *recorded {
            RecordedReply::Integer(number) => Reply::Integer(number),
            RecordedReply::Null => Reply::Null,
            RecordedReply::Stored(at) => self.record.replies[at as usize].clone(),
        }
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn interrupt(&mut self) -> Interrupt {
        Interrupt::Continue
    }
}

/// A host that gives the recorded replies first.
pub(crate) struct Replay<'a> {
    host: &'a mut dyn Host,
    record: &'a mut CallRecord,
    /// The commands that the plan has called.
    calls: Vec<Arguments>,
    /// How many of them Lua has called.
    replayed: usize,
    /// Whether the plan has run to its end.
    is_check: bool,
    /// The number of polls that are left until Lua has certainly reached the point where the plan
    /// was. Set if the host has ended the script, and for a check.
    end_after: Option<u64>,
    was_killed: bool,
    mismatch: Option<Mismatch>,
}

/// The point where Lua did something else than the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The number of commands that Lua had called as the plan had.
    agreed: usize,
    /// The name of the plan's next command, if there is one.
    planned: Option<Bytes>,
    /// The name of Lua's next command, if there is one.
    called: Option<Bytes>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |command: &Option<Bytes>| match command {
            Some(name) => format!("'{}'", name.escape_ascii()),
            None => "nothing".to_owned(),
        };
        write!(f, "after {} equal calls ", self.agreed)?;
        if (&self.planned, &self.called) == (&None, &None) {
            return f.write_str("their results differ");
        }
        write!(f, "the fast path called {}, Lua {}", name(&self.planned), name(&self.called))
    }
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        host: &'a mut dyn Host,
        record: &'a mut CallRecord,
        calls: Vec<Arguments>,
        end_after: Option<u64>,
    ) -> Replay<'a> {
        Replay {
            host,
            record,
            calls,
            replayed: 0,
            is_check: false,
            end_after,
            was_killed: false,
            mismatch: None,
        }
    }

    /// The host for a check of a plan that has run to its end. `polls_max` is more than Lua needs
    /// for a script of which the plan is right.
    pub(super) fn for_check(
        host: &'a mut dyn Host,
        record: &'a mut CallRecord,
        calls: Vec<Arguments>,
        polls_max: u64,
    ) -> Replay<'a> {
        Replay { is_check: true, ..Replay::new(host, record, calls, Some(polls_max)) }
    }

    /// Whether Lua has made all calls of the plan.
    fn is_over(&self) -> bool {
        self.replayed == self.record.commands.len()
    }

    /// Called when Lua has ended a check with a reply. Returns the mismatch between Lua and the
    /// plan, if there is one.
    pub(crate) fn finish_check(self, planned: &Reply, found: &Reply) -> Option<Mismatch> {
        let agreed = self.replayed;
        self.finish().or_else(|| {
            let differs = planned != found;
            differs.then_some(Mismatch { agreed, planned: None, called: None })
        })
    }

    /// Called when Lua has ended. Returns the mismatch between Lua and the plan, if there is one. A
    /// script that was killed before it made all calls is no mismatch.
    pub(crate) fn finish(mut self) -> Option<Mismatch> {
        if !self.is_over() && !self.was_killed {
            self.note_mismatch(None);
        }
        self.mismatch
    }

    fn note_mismatch(&mut self, called: Option<&[u8]>) {
        if self.mismatch.is_none() {
            let planned = self.calls.get(self.replayed).and_then(|call| call.first()).cloned();
            let called = called.map(Bytes::copy_from_slice);
            self.mismatch = Some(Mismatch { agreed: self.replayed, planned, called });
        }
    }

    /// The reply of the next command if the plan has run it, or an error for a command that must
    /// not be run.
    fn recorded(&mut self, argv: &[&[u8]]) -> Option<Reply> {
        if self.mismatch.is_none() && self.is_over() && !self.is_check {
            return None;
        }
        if self.calls.get(self.replayed).is_none_or(|call| call != argv) {
            self.note_mismatch(argv.first().copied());
        }
        if self.mismatch.is_some() {
            return Some(Reply::error(DISAGREEMENT));
        }
        let recorded = self.record.commands[self.replayed];
        self.replayed += 1;
        Some(match recorded {
            RecordedReply::Integer(number) => Reply::Integer(number),
            RecordedReply::Null => Reply::Null,
            RecordedReply::Stored(at) => {
                std::mem::replace(&mut self.record.replies[at as usize], Reply::Null)
            }
        })
    }
}

/// The error for the client of such a script.
pub(crate) const DISAGREEMENT: &str = "ERR Internal error: the fast path and Lua disagree on this \
    script. What it has changed so far stays. It is run by Lua alone from now on";

impl Host for Replay<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        self.recorded(argv).unwrap_or_else(|| self.host.call(argv))
    }

    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        self.host.command(name, arguments)
    }

    fn call_command(
        &mut self,
        command: CommandId,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        match self.recorded(argv) {
            Some(reply) => ShortReply::of(reply, place),
            None => self.host.call_command(command, argv, place),
        }
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        if !self.is_check {
            self.host.set_protocol(protocol);
        }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        if !self.is_check {
            self.host.log(level, message);
        }
    }

    fn clock_us(&self) -> u64 {
        self.host.clock_us()
    }

    fn interrupt(&mut self) -> Interrupt {
        if self.mismatch.is_some() {
            return Interrupt::Kill;
        }
        if self.is_check && self.end_after == Some(0) {
            self.note_mismatch(None);
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
