//! `cmsgpack`: values as MessagePack. Works on values only.

use bytes::Bytes;

use super::{Constant, LibraryCall, LibraryError, LibraryFunction, RustLibrary, VALUE_WORK, spend};
use crate::value::Value;

pub(super) const LIBRARY: RustLibrary = RustLibrary {
    name: "cmsgpack",
    functions: &[
        LibraryFunction { name: "pack", run: pack },
        LibraryFunction { name: "unpack", run: |call| unpack(call, 0, 0) },
        LibraryFunction { name: "unpack_limit", run: unpack_limit },
        LibraryFunction { name: "unpack_one", run: unpack_one },
    ],
    constants: &[
        ("_NAME", Constant::Text("cmsgpack")),
        ("_VERSION", Constant::Text("lua-cmsgpack 0.4.0")),
    ],
};

/// Tables nested deeper than this are packed as nil.
const PACKED_NESTING_MAX: usize = 16;
/// Input nested more deeply than this is refused: decoding recurses on a thread's stack.
const NESTING_MAX: usize = 256;

fn pack(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    if call.args.is_empty() {
        return Err(LibraryError::Argument(0, "MessagePack pack needs input.".to_owned()));
    }
    // Redis makes room for as many again.
    if !call.has_room(call.args.len()) {
        let text = "Too many arguments for MessagePack pack.";
        return Err(LibraryError::Argument(0, text.to_owned()));
    }
    let mut out = Vec::new();
    for value in &call.args {
        encode(&mut out, value, 0, call.work)?;
    }
    call.result(Value::Bytes(out.into()))
}

type Work<'a> = &'a dyn Fn(usize) -> bool;

fn encode(
    out: &mut Vec<u8>,
    value: &Value,
    depth: usize,
    work: Work<'_>,
) -> Result<(), LibraryError> {
    spend(work, VALUE_WORK)?;
    match value {
        Value::Number(number) => encode_number(out, *number),
        Value::Bytes(text) => {
            match text.len() {
                len @ 0..=31 => out.push(0xA0 | len as u8),
                len @ 32..=255 => out.extend_from_slice(&[0xD9, len as u8]),
                len => encode_length(out, 0xDA, len),
            }
            spend(work, text.len())?;
            out.extend_from_slice(text);
        }
        Value::Boolean(value) => out.push(0xC2 | u8::from(*value)),
        Value::Table(entries) if depth < PACKED_NESTING_MAX => {
            encode_table(out, entries, depth + 1, work)?;
        }
        _ => out.push(0xC0),
    }
    Ok(())
}

fn encode_table(
    out: &mut Vec<u8>,
    entries: &[(Value, Value)],
    depth: usize,
    work: Work<'_>,
) -> Result<(), LibraryError> {
    if let Some(items) = as_array(entries) {
        encode_count(out, (0x90, 0xDC), items.len());
        for item in items {
            encode(out, item, depth, work)?;
        }
    } else {
        encode_count(out, (0x80, 0xDE), entries.len());
        for (key, value) in entries {
            encode(out, key, depth, work)?;
            encode(out, value, depth, work)?;
        }
    }
    Ok(())
}

/// Writes a count: within the first code if it is small, after the second if it is large.
fn encode_count(out: &mut Vec<u8>, (few, many): (u8, u8), count: usize) {
    match u8::try_from(count) {
        Ok(count @ 0..=15) => out.push(few | count),
        _ => encode_length(out, many, count),
    }
}

/// The values in order, if the keys are 1 to n.
fn as_array(entries: &[(Value, Value)]) -> Option<Vec<&Value>> {
    let mut items = vec![None; entries.len()];
    for (key, value) in entries {
        let Value::Number(key) = key else { return None };
        if *key < 1.0 || key.fract() != 0.0 {
            return None;
        }
        *items.get_mut(*key as usize - 1)? = Some(value);
    }
    items.into_iter().collect()
}

/// Writes a length of two or four bytes; the codes of the two are consecutive.
fn encode_length(out: &mut Vec<u8>, code: u8, len: usize) {
    match u16::try_from(len) {
        Ok(len) => {
            out.push(code);
            out.extend_from_slice(&len.to_be_bytes());
        }
        Err(_) => {
            out.push(code + 1);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn encode_number(out: &mut Vec<u8>, number: f64) {
    let integer = crate::convert::truncate(number);
    if integer as f64 != number {
        let short = number as f32;
        if f64::from(short) == number {
            out.push(0xCA);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            out.push(0xCB);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    if (-32..128).contains(&integer) {
        return out.push(integer as u8);
    }
    let bytes = integer.to_be_bytes();
    let magnitude = integer.unsigned_abs();
    let (code, size) = match (integer > 0, magnitude) {
        (true, ..=0xFF) => (0xCC, 1),
        (true, ..=0xFFFF) => (0xCD, 2),
        (true, ..=0xFFFF_FFFF) => (0xCE, 4),
        (true, _) => (0xCF, 8),
        (false, ..=0x80) => (0xD0, 1),
        (false, ..=0x8000) => (0xD1, 2),
        (false, ..=0x8000_0000) => (0xD2, 4),
        (false, _) => (0xD3, 8),
    };
    out.push(code);
    out.extend_from_slice(&bytes[8 - size..]);
}

fn unpack_one(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let offset = if call.missing(2) { 0 } else { call.integer(2)? };
    call.args.truncate(1);
    unpack(call, 1, offset)
}

fn unpack_limit(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    let limit = call.integer(2)?;
    let offset = if call.missing(3) { 0 } else { call.integer(3)? };
    call.args.truncate(1);
    unpack(call, limit, offset)
}

/// Unpacks up to `limit` values from `offset` on, or all if both are zero. Unless it unpacks all,
/// the first result is the next offset, or -1 at the end.
fn unpack(call: &mut LibraryCall<'_>, limit: i64, offset: i64) -> Result<(), LibraryError> {
    let data = call.bytes(1)?;
    let len = data.len();
    // Messages show it as a C integer.
    let shown = offset as i32;
    let (Ok(limit), Ok(start)) = (usize::try_from(limit), usize::try_from(offset)) else {
        return Err(LibraryError::error(format!(
            "Invalid request to unpack with offset of {shown} and limit of {len}."
        )));
    };
    if start > len {
        let text = format!("Start offset {shown} greater than input length {len}.");
        return Err(LibraryError::error(text));
    }
    let all = limit == 0 && start == 0;
    let values_left = call.bytes_max / 64;
    let mut input = Input { rest: data.slice(start..), values_left, work: call.work };
    let mut values = Vec::new();
    while !input.rest.is_empty() && (all || values.len() < limit) {
        if !call.has_room(values.len() + 1) {
            return Err(LibraryError::error(
                "stack overflow (too many return values at once; \
                 use unpack_one or unpack_limit instead.)",
            ));
        }
        values.push(input.decode(0)?);
    }
    if !all {
        if !call.has_room(values.len() + 1) {
            return Err(LibraryError::error("stack overflow (in function mp_unpack_full)"));
        }
        let at = len - input.rest.len();
        call.results.push(Value::Number(if at == len { -1.0 } else { at as f64 }));
    }
    call.results.append(&mut values);
    Ok(())
}

struct Input<'a> {
    rest: Bytes,
    /// The number of values that may still be made: one byte can become dozens.
    values_left: usize,
    work: Work<'a>,
}

impl Input<'_> {
    fn decode(&mut self, depth: usize) -> Result<Value, LibraryError> {
        if depth > NESTING_MAX {
            return Err(LibraryError::error("stack overflow (too deeply nested)"));
        }
        self.values_left = self.values_left.checked_sub(1).ok_or_else(LibraryError::memory)?;
        spend(self.work, VALUE_WORK)?;
        let code = self.take(1)?[0];
        match code {
            0x00..=0x7F => Ok(Value::Number(f64::from(code))),
            0x80..=0x8F => self.map(usize::from(code & 15), depth),
            0x90..=0x9F => self.array(usize::from(code & 15), depth),
            0xA0..=0xBF => Ok(Value::Bytes(self.take(usize::from(code & 31))?)),
            0xC0 => Ok(Value::Nil),
            0xC2 => Ok(Value::Boolean(false)),
            0xC3 => Ok(Value::Boolean(true)),
            0xCA => Ok(Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32)))),
            0xCB => Ok(Value::Number(f64::from_bits(self.unsigned(8)?))),
            0xCC..=0xCF => Ok(Value::Number(self.unsigned(1 << (code & 3))? as i64 as f64)),
            0xD0..=0xD3 => {
                let size = 1 << (code & 3);
                let unused = 64 - 8 * size as u32;
                let value = (self.unsigned(size)? << unused) as i64 >> unused;
                Ok(Value::Number(value as f64))
            }
            0xD9..=0xDB => {
                let len = self.length(1 << (code - 0xD9))?;
                Ok(Value::Bytes(self.take(len)?))
            }
            0xDC | 0xDD => {
                let len = self.length(2 << (code & 1))?;
                self.array(len, depth)
            }
            0xDE | 0xDF => {
                let len = self.length(2 << (code & 1))?;
                self.map(len, depth)
            }
            0xE0..=0xFF => Ok(Value::Number(f64::from(code as i8))),
            _ => Err(LibraryError::error("Bad data format in input.")),
        }
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Value, LibraryError> {
        let mut entries = Vec::new();
        for i in 1..=len {
            entries.push((Value::Number(i as f64), self.decode(depth + 1)?));
        }
        Ok(Value::Table(entries))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value, LibraryError> {
        let mut entries = Vec::new();
        for _ in 0..len {
            let key = self.decode(depth + 1)?;
            entries.push((key, self.decode(depth + 1)?));
        }
        Ok(Value::Table(entries))
    }

    fn length(&mut self, size: usize) -> Result<usize, LibraryError> {
        Ok(self.unsigned(size)? as usize)
    }

    fn unsigned(&mut self, size: usize) -> Result<u64, LibraryError> {
        let bytes = self.take(size)?;
        Ok(bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    fn take(&mut self, len: usize) -> Result<Bytes, LibraryError> {
        if len > self.rest.len() {
            return Err(LibraryError::error("Missing bytes in input."));
        }
        Ok(self.rest.split_to(len))
    }
}
