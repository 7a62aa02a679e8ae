//! What Lua is run with when a plan has left: the commands that have been run are answered from the
//! record. Knows neither plans nor Lua.

use leasehold_resp::{Protocol, Reply};

use crate::{CommandId, Host, Interrupt, LogLevel};

/// The commands that a run has called, with their replies.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) commands: Vec<Recorded>,
    /// Those that are more than a word, for [`Told::More`].
    pub(super) replies: Vec<Reply>,
}

impl Record {
    pub(super) fn clear(&mut self) {
        self.commands.clear();
        self.replies.clear();
    }
}

/// A command that has been run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recorded {
    pub(super) told: Told,
    pub(super) print: Print,
}

/// What a command was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    Integer(i64),
    Null,
    /// The reply at this place.
    More(u32),
}

/// What a command is known by again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64);

impl Print {
    /// In a release, of how many bytes: two scripts that differ in more than that are none of ours.
    #[inline(always)]
    pub(super) fn of(argv: &[&[u8]]) -> Print {
        let mut sum = argv.len() as u64;
        for argument in argv {
            sum = sum.rotate_left(8) ^ argument.len() as u64;
        }
        if cfg!(debug_assertions) {
            let bytes = argv.iter().flat_map(|argument| argument.iter());
            sum = bytes.fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        }
        Print(sum)
    }
}

/// A host that first tells again what has been told.
pub(crate) struct Replay<'a> {
    host: &'a mut dyn Host,
    record: &'a mut Record,
    /// How many of the record's commands Lua has called.
    told: usize,
    /// The host has said to end the script. What is left of these is the questions until Lua is
    /// certainly not past the place where the plan was.
    end_after: Option<u64>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        host: &'a mut dyn Host,
        record: &'a mut Record,
        end_after: Option<u64>,
    ) -> Replay<'a> {
        Replay { host, record, told: 0, end_after }
    }

    /// Whether Lua has called what was called before, all of it.
    pub(crate) fn is_over(&self) -> bool {
        self.told == self.record.commands.len()
    }

    /// The next command's reply, if it has been run. A script that calls something else now than
    /// it did a moment ago has been understood wrongly, and may not go on.
    fn recorded(&mut self, argv: &[&[u8]]) -> Option<Reply> {
        let Recorded { told, print } = *self.record.commands.get(self.told)?;
        assert_eq!(print, Print::of(argv), "Lua calls what the plan has called");
        self.told += 1;
        Some(match told {
            Told::Integer(number) => Reply::Integer(number),
            Told::Null => Reply::Null,
            Told::More(at) => std::mem::replace(&mut self.record.replies[at as usize], Reply::Null),
        })
    }
}

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
        let is_over = self.is_over();
        match &mut self.end_after {
            None => self.host.interrupt(),
            Some(0) if is_over => Interrupt::Kill,
            Some(left) => {
                *left = left.saturating_sub(1);
                Interrupt::Continue
            }
        }
    }
}
