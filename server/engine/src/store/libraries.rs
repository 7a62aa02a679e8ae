//! The function libraries, a part of the state. Only the [`Writer`] changes them.

use std::ops::Deref;

use lockwheel_resp::{Protocol, Reply};
use lockwheel_scripting::{Functions, Host, Interrupt, LogLevel, Policy};

use super::apply::ApplyError;
use super::effects::Effect;
use super::writer::Writer;
use crate::limits;

/// The function libraries of the state.
pub struct Libraries(Functions);

impl Deref for Libraries {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.0
    }
}

impl Libraries {
    /// No libraries.
    pub fn new(functions: Functions) -> Libraries {
        Libraries(functions)
    }

    /// As [`Functions::run`].
    pub fn run(
        &mut self,
        name: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        self.0.run(name, keys, args, host)
    }

    /// Applies an effect on libraries.
    pub(super) fn apply(&mut self, effect: &Effect<'_>) -> Result<(), ApplyError> {
        let is_applied = match *effect {
            Effect::LibraryLoaded { code } => {
                self.0.load(code, true, &mut LibraryLoader::default()).is_ok()
            }
            Effect::LibraryDeleted { name } => self.0.delete(name),
            Effect::LibrariesFlushed {} => {
                self.0.flush();
                true
            }
            _ => false,
        };
        is_applied.then_some(()).ok_or(ApplyError::Missing)
    }

    /// As [`Functions::tidy`].
    pub fn tidy(&mut self) -> bool {
        self.0.tidy()
    }
}

impl Writer {
    /// As [`Functions::load`].
    pub fn load_library(
        &mut self,
        libraries: &mut Libraries,
        code: &[u8],
        replace: bool,
        host: &mut dyn Host,
    ) -> Result<String, Reply> {
        let name = libraries.0.load(code, replace, host)?;
        self.record_global(&Effect::LibraryLoaded { code });
        self.count_changes(1);
        Ok(name)
    }

    /// As [`Functions::restore`].
    pub fn restore_libraries(
        &mut self,
        libraries: &mut Libraries,
        codes: &[Vec<u8>],
        policy: Policy,
        host: &mut dyn Host,
    ) -> Result<(), Reply> {
        libraries.0.restore(codes, policy, host)?;
        if policy == Policy::Flush {
            self.record_global(&Effect::LibrariesFlushed {});
        }
        for code in codes {
            self.record_global(&Effect::LibraryLoaded { code });
        }
        self.count_changes(1);
        Ok(())
    }

    /// As [`Functions::delete`].
    pub fn delete_library(&mut self, libraries: &mut Libraries, name: &[u8]) -> bool {
        let is_deleted = libraries.0.delete(name);
        if is_deleted {
            self.record_global(&Effect::LibraryDeleted { name });
            self.count_changes(1);
        }
        is_deleted
    }

    /// As [`Functions::flush`].
    pub fn flush_libraries(&mut self, libraries: &mut Libraries) {
        libraries.0.flush();
        self.record_global(&Effect::LibrariesFlushed {});
        self.count_changes(1);
    }
}

/// The host of a library while it is loaded: no access to the engine, and limited time.
#[derive(Debug)]
pub struct LibraryLoader {
    interrupts_left: u32,
    /// The messages that it has logged.
    pub(crate) log: Vec<(LogLevel, String)>,
}

impl Default for LibraryLoader {
    fn default() -> LibraryLoader {
        let interrupts_left = limits::FUNCTION_LOAD_INTERRUPTS_MAX;
        LibraryLoader { interrupts_left, log: Vec::new() }
    }
}

impl Host for LibraryLoader {
    fn call(&mut self, _: &[&[u8]]) -> Reply {
        Reply::error("ERR a library may not call commands while it is loaded")
    }

    fn set_protocol(&mut self, _: Protocol) {}

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        self.log.push((level, String::from_utf8_lossy(message).into_owned()));
    }

    fn interrupt(&mut self) -> Interrupt {
        match self.interrupts_left.checked_sub(1) {
            Some(left) => {
                self.interrupts_left = left;
                Interrupt::Continue
            }
            None => Interrupt::Kill,
        }
    }
}
