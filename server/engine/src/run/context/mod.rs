//! The context of a command's handler: the engine, the caller, the time, and safe ways to read and
//! change keys.
//!
//! - `caller` is about the client of the command; `reads` and `writes` are about keys. Begin here.
//!
//! Rule: a handler accesses keys only through this type, so that it never sees an expired key.

mod caller;
mod reads;
mod writes;

use crate::Engine;
use crate::command::{Caller, Command};
use crate::sessions::ClientId;
use crate::timing::time::Time;

/// See the module's documentation.
pub struct Context<'a> {
    /// The engine.
    pub engine: &'a mut Engine,
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
