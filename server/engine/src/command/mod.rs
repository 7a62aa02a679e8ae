//! What a row says of a command: everything that the server uses before it runs the command.
//!
//! - `row` is the row, and the table of all rows. Begin here.
//! - `argument` is the grammar of arguments, `syntax_error` compares a request with it.
//! - `parse` reads single arguments; `caller` is how a command was called.
//! - `names` finds a row by its name; `slots` computes the slot of a key.
//!
//! Rule: nothing else matches names of commands. Gates, error texts, `COMMAND`, the tests over the
//! table and the documentation are derived from rows.

pub mod argument;
mod caller;
pub(crate) mod names;
mod parse;
mod row;
pub mod slots;
pub mod syntax_error;

pub use caller::Caller;
pub use parse::{integer, is, one_of, unsigned};
pub use row::{
    AddsNothing, Arity, Categories, Command, CommandStats, CommandTable, Entry, FileUse,
    FindKeyFlags, FindKeys, Flags, Group, Handler, KeyFlags, KeySpec, LockMeaning, Options,
    ScriptArgument,
};
