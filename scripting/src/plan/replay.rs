//! What Lua is run with when a plan has left: the commands that have been run are answered from the
//! record. Knows neither plans nor Lua.

use leasehold_resp::{Protocol, Reply};

use crate::{CommandId, Host, Interrupt, LogLevel};

/// A command that has been run.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) reply: Reply,
    pub(super) print: Print,
}

/// What a command is known by again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Print(u64);

impl Print {
    /// In a release, of how many bytes: two scripts that differ in more than that are none of ours.
    #[inline]
    pub(super) fn of(argv: &[&[u8]]) -> Print {
        let mut sum = argv.len() as u64;
        for argument in argv {
            sum = sum.wrapping_mul(31).wrapping_add(argument.len() as u64);
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
    record: std::vec::Drain<'a, Recorded>,
    /// The host has said to end the script. What is left of these is the questions until Lua is
    /// certainly not past the place where the plan was.
    end_after: Option<u64>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        host: &'a mut dyn Host,
        record: &'a mut Vec<Recorded>,
        end_after: Option<u64>,
    ) -> Replay<'a> {
        Replay { host, record: record.drain(..), end_after }
    }

    /// Whether Lua has called what was called before, all of it.
    pub(crate) fn is_over(&self) -> bool {
        self.record.len() == 0
    }

    /// The next command's reply, if it has been run. A script that calls something else now than
    /// it did a moment ago has been understood wrongly, and may not go on.
    fn recorded(&mut self, argv: &[&[u8]]) -> Option<Reply> {
        let Recorded { reply, print } = self.record.next()?;
        assert_eq!(print, Print::of(argv), "Lua calls what the plan has called");
        Some(reply)
    }
}

impl Host for Replay<'_> {
    fn call(&mut self, argv: &[&[u8]]) -> Reply {
        self.recorded(argv).unwrap_or_else(|| self.host.call(argv))
    }

    fn command(&mut self, name: &[u8]) -> Option<CommandId> {
        self.host.command(name)
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
        match &mut self.end_after {
            None => self.host.interrupt(),
            Some(0) if self.record.len() == 0 => Interrupt::Kill,
            Some(left) => {
                *left = left.saturating_sub(1);
                Interrupt::Continue
            }
        }
    }
}
