//! Scripts and function libraries: what is cached, and the end of what runs.

use lockwheel_scripting::{FoundScript, Interpreter, Policy};

use super::Context;
use crate::Engine;
use crate::error::Error;
use crate::locks::script::Purpose;
use crate::run::script::Running;
use crate::store::libraries::Libraries;
use lockwheel_resp::Reply;

impl Context<'_> {
    // --- scripts ---

    /// The cached scripts.
    ///
    /// # Errors
    /// While a script runs.
    pub fn scripts(&mut self) -> Result<&mut Interpreter, Error> {
        self.engine.interpreter.as_deref_mut().ok_or(Error::Busy)
    }

    /// The cached script with this SHA-1.
    #[inline(always)]
    pub fn find_script(&self, sha: &[u8]) -> Option<FoundScript> {
        self.engine.interpreter.as_ref().and_then(|interpreter| interpreter.find(sha))
    }

    /// As [`Context::run_script`]; notes for the lock view if the script has acquired no lock.
    #[inline(always)]
    pub fn run_cached_script(
        &mut self,
        running: Running,
        (sha, script): (&[u8], FoundScript),
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Reply {
        let dirty = self.engine.writer.dirty();
        let reply = self.run_script(running, script, keys, args);
        if self.engine.writer.dirty() == dirty {
            self.note_refused_locks(sha, keys);
        }
        reply
    }

    /// Notes that a script has changed nothing: if it acquires locks, they were refused.
    #[cold]
    fn note_refused_locks(&mut self, sha: &[u8], keys: &[&[u8]]) {
        let Engine { writer, interpreter, script_purposes, .. } = &mut *self.engine;
        if writer.lock_notes().is_none() || keys.is_empty() {
            return;
        }
        let Some(text) = interpreter.as_ref().and_then(|interpreter| interpreter.text(sha)) else {
            return;
        };
        if script_purposes.of(sha, text) != Purpose::Acquire {
            return;
        }
        for key in keys {
            if let Some(slot) = writer.find_cached(self.database, key) {
                writer.refuse_lock(self.database, slot);
            }
        }
    }

    /// Removes all cached scripts, unless one runs.
    pub fn flush_scripts(&mut self) {
        self.engine.flush_scripts();
    }

    /// Ends the running script or, if `function`, the running function.
    pub fn kill_script(&mut self, function: bool) -> Result<(), Error> {
        let busy = self.engine.busy_error();
        match self.engine.script.as_mut() {
            None => Err(Error::line("NOTBUSY No scripts in execution right now.")),
            Some(script) if script.wrote => Err(Error::line(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. \
                 You can either wait the script termination or kill the server in a hard way \
                 using the SHUTDOWN NOSAVE command.",
            )),
            Some(script) if script.function.is_some() != function => Err(busy),
            Some(script) => {
                script.killed = true;
                Ok(())
            }
        }
    }

    // --- functions ---

    /// The function libraries.
    ///
    /// # Errors
    /// While a function runs.
    pub fn libraries(&self) -> Result<&Libraries, Error> {
        self.engine.writer.libraries().ok_or_else(|| self.engine.busy_error())
    }

    /// Loads a library, and returns its name.
    pub fn load_library(&mut self, code: &[u8], replace: bool) -> Result<String, Error> {
        let loaded = self.engine.change_functions(|writer, libraries, host| {
            writer.load_library(libraries, code, replace, host)
        });
        loaded?.map_err(Error::refused)
    }

    /// Loads libraries: all of them, or none.
    pub fn restore_libraries(&mut self, codes: &[Vec<u8>], policy: Policy) -> Result<(), Error> {
        let restored = self.engine.change_functions(|writer, libraries, host| {
            writer.restore_libraries(libraries, codes, policy, host)
        });
        restored?.map_err(Error::refused)
    }

    /// Removes a library; returns whether it existed.
    pub fn delete_library(&mut self, name: &[u8]) -> Result<bool, Error> {
        self.engine.change_functions(|writer, libraries, _| writer.delete_library(libraries, name))
    }

    /// Removes all libraries.
    pub fn flush_libraries(&mut self) -> Result<(), Error> {
        self.engine.change_functions(|writer, libraries, _| writer.flush_libraries(libraries))
    }
}
