//! `bit`: arithmetic on 32-bit words. Knows only numbers.

use super::{Call, Fault, Function, Library};
use crate::value::Value;

pub(super) const LIBRARY: Library = Library {
    name: "bit",
    functions: &[
        Function { name: "arshift", run: |call| shift(call, |x, n| (x as i32 >> n) as u32) },
        Function { name: "band", run: |call| fold(call, |a, b| a & b) },
        Function { name: "bnot", run: |call| map(call, |x| !x) },
        Function { name: "bor", run: |call| fold(call, |a, b| a | b) },
        Function { name: "bswap", run: |call| map(call, u32::swap_bytes) },
        Function { name: "bxor", run: |call| fold(call, |a, b| a ^ b) },
        Function { name: "lshift", run: |call| shift(call, |x, n| x << n) },
        Function { name: "rol", run: |call| shift(call, u32::rotate_left) },
        Function { name: "ror", run: |call| shift(call, u32::rotate_right) },
        Function { name: "rshift", run: |call| shift(call, |x, n| x >> n) },
        Function { name: "tobit", run: |call| map(call, |x| x) },
        Function { name: "tohex", run: tohex },
    ],
    constants: &[],
};

/// The word a number stands for: rounded to even, the low 32 bits.
fn word(call: &Call<'_>, at: usize) -> Result<u32, Fault> {
    // Adding 2^52 + 2^51 leaves the integer in the low bits of the double.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    Ok((call.number(at)? + SHIFT).to_bits() as u32)
}

fn give(call: &mut Call<'_>, word: u32) -> Result<(), Fault> {
    call.result(Value::Number(f64::from(word as i32)))
}

fn map(call: &mut Call<'_>, f: fn(u32) -> u32) -> Result<(), Fault> {
    let word = word(call, 1)?;
    give(call, f(word))
}

fn fold(call: &mut Call<'_>, f: fn(u32, u32) -> u32) -> Result<(), Fault> {
    let mut result = word(call, 1)?;
    // From the last on: the error names the last of several that are no numbers.
    for at in (2..=call.args.len()).rev() {
        result = f(result, word(call, at)?);
    }
    give(call, result)
}

fn shift(call: &mut Call<'_>, f: fn(u32, u32) -> u32) -> Result<(), Fault> {
    let (value, count) = (word(call, 1)?, word(call, 2)?);
    give(call, f(value, count & 31))
}

fn tohex(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = word(call, 1)?;
    let digits = if call.args.len() < 2 { 8 } else { word(call, 2)? as i32 };
    let text = match digits {
        ..0 => format!("{value:08X}"),
        _ => format!("{value:08x}"),
    };
    let keep = (digits.unsigned_abs() as usize).min(8);
    call.result(Value::Bytes(text.as_bytes()[8 - keep..].to_vec().into()))
}
