//! The server family.

use crate::engine::command::Command;

/// The family's rows.
pub const COMMANDS: &[Command] = &[];
