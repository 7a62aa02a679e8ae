//! The libraries Redis adds to Lua, in safe Rust: values in, values out. They know no Lua state.

mod bit;
pub(crate) mod cjson;
mod cmsgpack;
#[path = "struct_.rs"]
mod structs;

use bytes::Bytes;

use crate::lua_number::{parse_number, write_general};
use crate::value::Value;

/// One call of a library function: what it was given, and what it gives back.
pub(crate) struct Call<'a> {
    /// The arguments.
    pub(crate) args: Vec<Value>,
    /// The results, in order.
    pub(crate) results: Vec<Value>,
    /// Bytes it may build.
    pub(crate) bytes_max: usize,
    /// Told of work before it is done; says whether to go on. If it is not to, what the function
    /// returns does not matter.
    pub(crate) work: &'a dyn Fn(usize) -> bool,
    /// What this script has set `cjson` to.
    pub(crate) cjson: cjson::Settings,
}

/// Why a library function failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The argument at this place, counted from one, is wrong in this way.
    Argument(usize, String),
    /// An error with this text.
    Error(Vec<u8>),
}

/// A function of a library.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Call<'_>) -> Result<(), Fault>,
}

/// A library: its name, functions and constants.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) functions: &'static [Function],
    pub(crate) constants: &'static [(&'static str, Constant)],
}

/// A constant of a library.
pub(crate) enum Constant {
    Text(&'static str),
    /// `cjson.null`
    Null,
}

/// All of them.
pub(crate) const LIBRARIES: &[Library] =
    &[bit::LIBRARY, cjson::LIBRARY, cmsgpack::LIBRARY, structs::LIBRARY];

/// More results than this do not fit on Lua's stack.
const RESULTS_MAX: usize = 7_990;

/// The work of a value, and as many bytes as are gone through one by one between two questions.
const VALUE_WORK: usize = 32;
const CHUNK_BYTES: usize = 4 << 10;

/// Tells of work before it is done.
fn spend(work: &dyn Fn(usize) -> bool, amount: usize) -> Result<(), Fault> {
    if work(amount) { Ok(()) } else { Err(Fault::stopped()) }
}

impl Fault {
    fn error(text: impl Into<String>) -> Fault {
        Fault::Error(text.into().into_bytes())
    }

    /// The script must end.
    fn stopped() -> Fault {
        Fault::Error(Vec::new())
    }

    fn memory() -> Fault {
        Fault::error("not enough memory")
    }
}

impl Call<'_> {
    fn result(&mut self, value: Value) -> Result<(), Fault> {
        self.results.push(value);
        Ok(())
    }

    /// The argument at this place, a number or a string that reads as one.
    fn number(&self, at: usize) -> Result<f64, Fault> {
        let number = match self.args.get(at - 1) {
            Some(Value::Number(number)) => Some(*number),
            Some(Value::Bytes(text)) => parse_number(text),
            _ => None,
        };
        number.ok_or_else(|| self.expected("number", at))
    }

    /// As `number`, truncated.
    fn integer(&self, at: usize) -> Result<i64, Fault> {
        Ok(crate::convert::truncate(self.number(at)?))
    }

    /// The argument at this place, a string, or a number as text.
    fn bytes(&self, at: usize) -> Result<Bytes, Fault> {
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

    /// Whether nothing was given at this place.
    fn missing(&self, at: usize) -> bool {
        matches!(self.args.get(at - 1), None | Some(Value::Nil))
    }

    fn expected(&self, what: &str, at: usize) -> Fault {
        let got = self.args.get(at - 1).map_or("no value", Value::type_name);
        Fault::Argument(at, format!("{what} expected, got {got}"))
    }
}
