//! The libraries Redis adds to Lua, in safe Rust: values in, values out. They know no Lua state.

use crate::value::Value;

/// One call of a library function: what it was given, and what it gives back.
pub(crate) struct Call {
    /// The arguments.
    pub(crate) args: Vec<Value>,
    /// The results, in order.
    pub(crate) results: Vec<Value>,
    /// Bytes it may build.
    pub(crate) bytes_max: usize,
}

/// Why a library function failed.
pub(crate) enum Fault {
    /// The argument at this place, counted from one, is wrong in this way.
    Argument(usize, String),
    /// An error with this text.
    Error(Vec<u8>),
}

/// A function of a library.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Call) -> Result<(), Fault>,
}

/// A library: its name, functions and constants.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) functions: &'static [Function],
    pub(crate) constants: &'static [(&'static str, Value)],
}

/// All of them.
pub(crate) const LIBRARIES: &[Library] = &[];
