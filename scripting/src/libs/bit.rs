//! `bit`: arithmetic on 32-bit words. Works on numbers only.

use super::{LibraryCall, LibraryError, LibraryFunction, RustLibrary};
use crate::value::Value;

pub(super) const LIBRARY: RustLibrary = RustLibrary {
    name: "bit",
    functions: &[
        LibraryFunction { name: "arshift", run: |call| shift(call, |x, n| (x as i32 >> n) as u32) },
        LibraryFunction { name: "band", run: |call| fold(call, |a, b| a & b) },
        LibraryFunction { name: "bnot", run: |call| map(call, |x| !x) },
        LibraryFunction { name: "bor", run: |call| fold(call, |a, b| a | b) },
        LibraryFunction { name: "bswap", run: |call| map(call, u32::swap_bytes) },
        LibraryFunction { name: "bxor", run: |call| fold(call, |a, b| a ^ b) },
        LibraryFunction { name: "lshift", run: |call| shift(call, |x, n| x << n) },
        LibraryFunction { name: "rol", run: |call| shift(call, u32::rotate_left) },
        LibraryFunction { name: "ror", run: |call| shift(call, u32::rotate_right) },
        LibraryFunction { name: "rshift", run: |call| shift(call, |x, n| x >> n) },
        LibraryFunction { name: "tobit", run: |call| map(call, |x| x) },
        LibraryFunction { name: "tohex", run: tohex },
    ],
    constants: &[],
};

/// Converts a number to a word: rounded to even, the low 32 bits.
fn word(call: &LibraryCall<'_>, at: usize) -> Result<u32, LibraryError> {
    // Adding 2^52 + 2^51 leaves the integer in the low bits of the double.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    Ok((call.number(at)? + SHIFT).to_bits() as u32)
}

fn give(call: &mut LibraryCall<'_>, word: u32) -> Result<(), LibraryError> {
    call.result(Value::Number(f64::from(word as i32)))
}

fn map(call: &mut LibraryCall<'_>, f: fn(u32) -> u32) -> Result<(), LibraryError> {
    let word = word(call, 1)?;
    give(call, f(word))
}

fn fold(call: &mut LibraryCall<'_>, f: fn(u32, u32) -> u32) -> Result<(), LibraryError> {
    let mut result = word(call, 1)?;
    // From the last argument on: the error names the last one that is no number.
    for at in (2..=call.args.len()).rev() {
        result = f(result, word(call, at)?);
    }
    give(call, result)
}

fn shift(call: &mut LibraryCall<'_>, f: fn(u32, u32) -> u32) -> Result<(), LibraryError> {
    let (value, count) = (word(call, 1)?, word(call, 2)?);
    give(call, f(value, count & 31))
}

fn tohex(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let value = word(call, 1)?;
    let digits = if call.args.len() < 2 { 8 } else { word(call, 2)? as i32 };
    let text = match digits {
        ..0 => format!("{value:08X}"),
        _ => format!("{value:08x}"),
    };
    let keep = (digits.unsigned_abs() as usize).min(8);
    call.result(Value::Bytes(text.as_bytes()[8 - keep..].to_vec().into()))
}
