//! The libraries that Redis adds to Lua, in safe Rust. They work on values and have no access to a
//! Lua state.

mod bit;
pub(crate) mod cjson;
mod cmsgpack;
#[path = "struct_.rs"]
mod structs;

use bytes::Bytes;

use crate::lua_number::{parse_number, write_general};
use crate::value::Value;

/// One call of a library function: its arguments and its results.
pub(crate) struct LibraryCall<'a> {
    /// The arguments.
    pub(crate) args: Vec<Value>,
    /// The results, in order.
    pub(crate) results: Vec<Value>,
    /// Bytes that it may build.
    pub(crate) bytes_max: usize,
    /// Called with the amount of work before it is done. Returns whether to go on; if not, the
    /// results of the function are not used.
    pub(crate) work: &'a dyn Fn(usize) -> bool,
    /// The running script's settings of `cjson`.
    pub(crate) cjson: cjson::Settings,
}

/// The error of a library function.
#[derive(Debug)]
pub(crate) enum LibraryError {
    /// The argument at this position, counted from one, is invalid for this reason.
    Argument(usize, String),
    /// An error with this text.
    Error(Vec<u8>),
}

/// A function of a library.
pub(crate) struct LibraryFunction {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut LibraryCall<'_>) -> Result<(), LibraryError>,
}

/// A library: its name, functions and constants.
pub(crate) struct RustLibrary {
    pub(crate) name: &'static str,
    pub(crate) functions: &'static [LibraryFunction],
    pub(crate) constants: &'static [(&'static str, Constant)],
}

/// A constant of a library.
pub(crate) enum Constant {
    Text(&'static str),
    /// `cjson.null`
    Null,
}

/// All libraries.
pub(crate) const LIBRARIES: &[RustLibrary] =
    &[bit::LIBRARY, cjson::LIBRARY, cmsgpack::LIBRARY, structs::LIBRARY];

/// The arguments and results of one call, as the stack of a function in C may hold in Lua.
const STACK_SLOTS_MAX: usize = 8_000;

/// The work of a value, and the bytes that are processed one by one between two polls.
const VALUE_WORK: usize = 32;
const CHUNK_BYTES: usize = 4 << 10;

/// Counts work before it is done.
fn spend(work: &dyn Fn(usize) -> bool, amount: usize) -> Result<(), LibraryError> {
    if work(amount) { Ok(()) } else { Err(LibraryError::stopped()) }
}

impl LibraryError {
    fn error(text: impl Into<String>) -> LibraryError {
        LibraryError::Error(text.into().into_bytes())
    }

    /// Returns the error that ends the script.
    fn stopped() -> LibraryError {
        LibraryError::Error(Vec::new())
    }

    fn memory() -> LibraryError {
        LibraryError::error("not enough memory")
    }
}

impl LibraryCall<'_> {
    /// Whether the stack has room for this many values besides the arguments.
    fn has_room(&self, values: usize) -> bool {
        self.args.len() + values <= STACK_SLOTS_MAX
    }

    fn result(&mut self, value: Value) -> Result<(), LibraryError> {
        self.results.push(value);
        Ok(())
    }

    /// The argument at this position, a number or a string that is one.
    fn number(&self, at: usize) -> Result<f64, LibraryError> {
        let number = match self.args.get(at - 1) {
            Some(Value::Number(number)) => Some(*number),
            Some(Value::Bytes(text)) => parse_number(text),
            _ => None,
        };
        number.ok_or_else(|| self.expected("number", at))
    }

    /// Does the same as `number`, truncated.
    fn integer(&self, at: usize) -> Result<i64, LibraryError> {
        Ok(crate::convert::truncate(self.number(at)?))
    }

    /// The argument at this position, a string, or a number as text.
    fn bytes(&self, at: usize) -> Result<Bytes, LibraryError> {
        match self.args.get(at - 1) {
            Some(Value::Bytes(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => {
                let mut text = Vec::new();
                write_general(&mut text, *number, 14);
                Ok(text.into())
            }
            _ => Err(self.expected("string", at)),
        }
    }

    /// Whether the argument at this position is missing.
    fn missing(&self, at: usize) -> bool {
        matches!(self.args.get(at - 1), None | Some(Value::Nil))
    }

    fn expected(&self, what: &str, at: usize) -> LibraryError {
        let got = self.args.get(at - 1).map_or("no value", Value::type_name);
        LibraryError::Argument(at, format!("{what} expected, got {got}"))
    }
}
