//! `struct`: packs numbers and strings as bytes in a given format. Works on values only.

use super::{LibraryCall, LibraryError, LibraryFunction, RustLibrary, spend};
use crate::convert::{c_string, truncate};
use crate::value::Value;

pub(super) const LIBRARY: RustLibrary = RustLibrary {
    name: "struct",
    functions: &[
        LibraryFunction { name: "pack", run: pack },
        LibraryFunction { name: "size", run: size },
        LibraryFunction { name: "unpack", run: unpack },
    ],
    constants: &[],
};

/// The work of one option.
const OPTION_WORK: usize = 8;
/// The widest integer.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment of `!` alone: that of the widest C type.
const ALIGNMENT_NATIVE: usize = 8;

/// The rest of a format string.
struct Format<'a> {
    text: &'a [u8],
    work: &'a dyn Fn(usize) -> bool,
    big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8], work: &'a dyn Fn(usize) -> bool) -> Format<'a> {
        // It is read as a C string.
        let text = c_string(text);
        Format { text, work, big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The next option and its size.
    fn next(&mut self) -> Result<Option<(u8, usize)>, LibraryError> {
        let Some((option, rest)) = self.text.split_first() else { return Ok(None) };
        self.text = rest;
        spend(self.work, OPTION_WORK)?;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => {
                let size = self.count(4)?;
                if size > INTEGER_BYTES_MAX {
                    return Err(LibraryError::error(format!(
                        "integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"
                    )));
                }
                size
            }
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    fn count(&mut self, default: usize) -> Result<usize, LibraryError> {
        let digits = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let (number, rest) = self.text.split_at(digits);
        self.text = rest;
        let number = std::str::from_utf8(number).unwrap_or_default().parse::<i32>();
        let overflow = |_| LibraryError::error("integral size overflow");
        number.map(|n| n.unsigned_abs() as usize).map_err(overflow)
    }

    /// The padding before an option of this size at this position.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    /// Applies an option that only changes how the rest is read.
    fn control(&mut self, option: u8) -> Result<(), LibraryError> {
        match option {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let alignment = self.count(ALIGNMENT_NATIVE)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(LibraryError::error(text));
                }
                self.alignment = alignment;
            }
            other => {
                let text = format!("invalid format option '{}'", char::from(other));
                return Err(LibraryError::Argument(1, text));
            }
        }
        Ok(())
    }
}

fn pack(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let format = call.bytes(1)?;
    let mut format = Format::new(&format, call.work);
    let mut out = Vec::new();
    let mut at = 2;
    // A position beyond the arguments reads as nil.
    call.args.push(Value::Nil);
    while let Some((option, size)) = format.next()? {
        let filling = format.padding(out.len(), option, size);
        if out.len().saturating_add(filling).saturating_add(size) > call.bytes_max {
            return Err(LibraryError::memory());
        }
        out.resize(out.len() + filling, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let value = unsigned(call.number(at)?);
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                if format.big_endian {
                    bytes[..size].reverse();
                }
                out.extend_from_slice(&bytes[..size]);
                at += 1;
            }
            b'x' => out.push(0),
            b'f' => {
                let bytes = (call.number(at)? as f32).to_le_bytes();
                put(&mut out, bytes, format.big_endian);
                at += 1;
            }
            b'd' => {
                put(&mut out, call.number(at)?.to_le_bytes(), format.big_endian);
                at += 1;
            }
            b'c' | b's' => {
                let text = call.bytes(at)?;
                at += 1;
                let size = if size == 0 { text.len() } else { size };
                let Some(text) = text.get(..size) else {
                    return Err(LibraryError::Argument(at, "string too short".to_owned()));
                };
                out.extend_from_slice(text);
                if option == b's' {
                    out.push(0);
                }
            }
            other => format.control(other)?,
        }
    }
    call.result(Value::Bytes(out.into()))
}

fn unpack(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let (format, data) = (call.bytes(1)?, call.bytes(2)?);
    let offset = if call.missing(3) { 1 } else { call.integer(3)? };
    if offset == 0 {
        return Err(LibraryError::Argument(3, "offset must be 1 or greater".to_owned()));
    }
    let mut format = Format::new(&format, call.work);
    let begin = usize::try_from(offset.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut at = begin;
    while let Some((option, size)) = format.next()? {
        at = at.saturating_add(format.padding(at, option, size));
        let field = slice(&data, at, size)?;
        if !call.has_room(call.results.len() + 2) {
            return Err(LibraryError::error("stack overflow (too many results)"));
        }
        let mut taken = size;
        match option {
            b'b' | b'h' | b'l' | b'i' | b'B' | b'H' | b'L' | b'T' | b'I' => {
                let value = integer(field, option.is_ascii_lowercase(), format.big_endian);
                call.results.push(Value::Number(value));
            }
            b'x' => {}
            b'f' => {
                let value = f32::from_le_bytes(get(field, format.big_endian));
                call.results.push(Value::Number(f64::from(value)));
            }
            b'd' => {
                let value = f64::from_le_bytes(get(field, format.big_endian));
                call.results.push(Value::Number(value));
            }
            b'c' => {
                if size == 0 {
                    let Some(Value::Number(size)) = call.results.pop() else {
                        return Err(LibraryError::error("format 'c0' needs a previous size"));
                    };
                    taken = usize::try_from(truncate(size)).unwrap_or(usize::MAX);
                }
                let text = slice(&data, at, taken)?;
                call.results.push(Value::Bytes(data.slice_ref(text)));
            }
            b's' => {
                let rest = slice(&data, at, data.len().saturating_sub(at))?;
                let Some(end) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(LibraryError::error("unfinished string in data"));
                };
                call.results.push(Value::Bytes(data.slice_ref(&rest[..end])));
                taken = end + 1;
            }
            other => format.control(other)?,
        }
        at += taken;
    }
    // The next position. An empty format reads nothing at any position.
    call.result(Value::Number(offset.wrapping_add((at - begin) as i64) as f64))
}

fn size(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let format = call.bytes(1)?;
    let mut format = Format::new(&format, call.work);
    let mut total = 0;
    while let Some((option, size)) = format.next()? {
        total += format.padding(total, option, size);
        match option {
            b's' => return Err(no_fixed_size("s")),
            b'c' if size == 0 => return Err(no_fixed_size("c0")),
            other if !other.is_ascii_alphanumeric() => format.control(other)?,
            _ => {}
        }
        total = total.saturating_add(size);
    }
    call.result(Value::Number(total as f64))
}

fn no_fixed_size(option: &str) -> LibraryError {
    LibraryError::Argument(1, format!("option '{option}' has no fixed size"))
}

/// Converts as C does on x86-64: a number beyond 2^64 becomes zero.
fn unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF {
        (truncate(number - HALF) as u64) ^ (1 << 63)
    } else {
        truncate(number) as u64
    }
}

fn integer(field: &[u8], signed: bool, big_endian: bool) -> f64 {
    let shift_in = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
    let word = match big_endian {
        true => field.iter().fold(0, shift_in),
        false => field.iter().rev().fold(0, shift_in),
    };
    if !signed {
        return word as f64;
    }
    let unused = 64_u32.saturating_sub(8 * field.len() as u32).min(63);
    ((word << unused) as i64 >> unused) as f64
}

fn put<const N: usize>(out: &mut Vec<u8>, mut bytes: [u8; N], big_endian: bool) {
    if big_endian {
        bytes.reverse();
    }
    out.extend_from_slice(&bytes);
}

fn get<const N: usize>(field: &[u8], big_endian: bool) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(field);
    if big_endian {
        bytes.reverse();
    }
    bytes
}

fn slice(data: &[u8], at: usize, size: usize) -> Result<&[u8], LibraryError> {
    let end = at.checked_add(size);
    let field = end.and_then(|end| data.get(at..end));
    field.ok_or_else(|| LibraryError::Argument(2, "data string too short".to_owned()))
}
