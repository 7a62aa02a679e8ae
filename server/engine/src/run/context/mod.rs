//! The context of a command's handler: the caller, the time, and all that a handler may do to the
//! engine.
//!
//! - `reads` and `writes` are about keys, `locks` about native locks. Begin here.
//! - `caller` is about the client of the command, `clients` about the others.
//! - `server` has what belongs to no key and no client; `scripts` what runs commands, `instruments`
//!   what only tests use.
//!
//! Rule: a handler changes the engine only through the methods of this type, and never sees an
//! expired key unless it visits all keys. The engine itself is private to `run/`:
//!
//! ```compile_fail,E0616
//! fn handler(context: &mut lockwheel_engine::run::context::Context<'_>) {
//!     context.engine.set_busy();
//! }
//! ```

mod caller;
mod clients;
mod instruments;
mod locks;
mod reads;
mod scripts;
mod server;
mod writes;

use crate::Engine;
use crate::command::{Caller, Command};
use crate::sessions::ClientId;
use crate::timing::time::Time;

/// The context of a command's handler.
pub struct Context<'a> {
    /// The engine, for the methods of this type and for what runs commands.
    pub(super) engine: &'a mut Engine,
    /// The client that sent the request, transaction or script.
    pub client: ClientId,
    /// How the command was called.
    pub caller: Caller,
    /// The selected database.
    pub database: usize,
    /// The time: the same for a whole transaction or script.
    pub time: Time,
    /// The row of the command.
    pub command: &'static Command,
    /// The full name: `incr`, or `client|id` for a subcommand.
    pub name: &'static str,
}
