//! Commands for the bits of strings. Bit 0 is the highest bit of the first byte.

use lockwheel_resp::{Reply, number};
use smallvec::SmallVec;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is, one_of};
use crate::commands::strings::zeros;
use crate::error::Error;
use crate::run::context::Context;
use crate::store::dict::Slot;
use crate::store::events::Events;
use crate::store::records::NewValue;
use crate::store::string_value::{StringValue, Text};
use crate::store::value::Typed;

const BITMAP: Command = Command {
    group: Group::Bitmap,
    categories: Categories::BITMAP,
    keys: READ_KEY,
    since: "2.2.0",
    ..Command::BASE
};

const FAST_READ: Flags = Flags::READONLY.union(Flags::FAST);
const WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM);
const READ_KEY: &[KeySpec] = &[KeySpec::one(&["RO", "access"])];

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "bitcount",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY,
        since: "2.6.0",
        complexity: "O(N) in the bytes looked at",
        doc: "Counts the bits that are set in a string or a part of it.",
        arguments: &[
            arg::key("key"),
            arg::block(
                "index",
                &[
                    arg::integer("start"),
                    arg::integer("end"),
                    arg::one_of("index_unit", &[arg::word("BYTE"), arg::word("BIT")])
                        .optional()
                        .since("7.0.0"),
                ],
            )
            .optional(),
        ],
        example: "SET k ab; BITCOUNT k 0 0 => 3",
        run: bitcount,
        ..BITMAP
    },
    Command {
        name: "bitfield",
        arity: Arity::AtLeast(2),
        flags: WRITE,
        keys: &[KeySpec::one(&["RW", "access", "update", "variable_flags"])],
        key_flags: Some(|argv| {
            if only_reads(&argv[2..]) { &["RO", "access"] } else { &["RW", "access", "update"] }
        }),
        since: "3.2.0",
        complexity: "O(1) an operation",
        doc: "Reads and changes integers of any width at any bit of a string.",
        arguments: &[
            arg::key("key"),
            arg::one_of(
                "operation",
                &[
                    arg::block(
                        "encoding_offset",
                        &[arg::string("encoding"), arg::integer("offset")],
                    )
                    .token("GET"),
                    arg::block(
                        "write",
                        &[
                            arg::one_of(
                                "wrap_sat_fail",
                                &[arg::word("WRAP"), arg::word("SAT"), arg::word("FAIL")],
                            )
                            .token("OVERFLOW")
                            .optional(),
                            arg::one_of(
                                "write_operation",
                                &[
                                    arg::block(
                                        "encoding_offset_value",
                                        &[
                                            arg::string("encoding"),
                                            arg::integer("offset"),
                                            arg::integer("value"),
                                        ],
                                    )
                                    .token("SET"),
                                    arg::block(
                                        "encoding_offset_increment",
                                        &[
                                            arg::string("encoding"),
                                            arg::integer("offset"),
                                            arg::integer("increment"),
                                        ],
                                    )
                                    .token("INCRBY"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
            .optional()
            .multiple(),
        ],
        example: "BITFIELD k SET u4 #1 9 INCRBY u4 #1 1 => [0, 10]",
        run: |context, argv| bitfield(context, argv, false),
        ..BITMAP
    },
    Command {
        name: "bitfield_ro",
        arity: Arity::AtLeast(2),
        flags: FAST_READ,
        since: "6.0.0",
        complexity: "O(1) an operation",
        doc: "Reads integers of any width at any bit of a string.",
        arguments: &[
            arg::key("key"),
            arg::block("encoding_offset", &[arg::string("encoding"), arg::integer("offset")])
                .token("GET")
                .optional()
                .multiple_token(),
        ],
        example: "SET k a; BITFIELD_RO k GET u4 0 => [6]",
        run: |context, argv| bitfield(context, argv, true),
        ..BITMAP
    },
    Command {
        name: "bitop",
        arity: Arity::AtLeast(4),
        flags: WRITE,
        keys: &[
            KeySpec::at(2, &["OW", "update"]),
            KeySpec { begin: 3, ..KeySpec::all(&["RO", "access"]) },
        ],
        since: "2.6.0",
        complexity: "O(N) in the bytes of all strings",
        doc: "Stores the AND, OR, XOR or NOT of strings; returns its length.",
        arguments: &[
            arg::string("operation"),
            arg::key("destkey"),
            arg::key("key").spec(1).multiple(),
        ],
        example: "SET k a; SET l b; BITOP AND d k l; GET d => \"`\"; BITOP NOT d k => 1",
        run: bitop,
        ..BITMAP
    },
    Command {
        name: "bitpos",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        since: "2.8.7",
        complexity: "O(N) in the bytes looked at",
        doc: "Finds the first bit that is set, or clear, in a string or a part of it.",
        arguments: &[
            arg::key("key"),
            arg::integer("bit"),
            arg::block(
                "index",
                &[
                    arg::integer("start"),
                    arg::block(
                        "end_index",
                        &[
                            arg::integer("end"),
                            arg::one_of("index_unit", &[arg::word("BYTE"), arg::word("BIT")])
                                .optional()
                                .since("7.0.0"),
                        ],
                    )
                    .optional(),
                ],
            )
            .optional(),
        ],
        example: "SET k a; BITPOS k 1 => 1",
        run: bitpos,
        ..BITMAP
    },
    Command {
        name: "getbit",
        arity: Arity::Exactly(3),
        flags: FAST_READ,
        doc: "Returns one bit.",
        arguments: &[arg::key("key"), arg::integer("offset")],
        example: "SET k a; GETBIT k 1 => 1",
        run: getbit,
        ..BITMAP
    },
    Command {
        name: "setbit",
        arity: Arity::Exactly(4),
        flags: WRITE,
        keys: &[KeySpec::one(&["RW", "access", "update"])],
        doc: "Sets or clears one bit of a string, which grows as needed; returns the previous bit.",
        arguments: &[arg::key("key"), arg::integer("offset"), arg::integer("value")],
        example: "SETBIT k 7 1; SETBIT k 7 0 => 1",
        run: setbit,
        ..BITMAP
    },
];

// --- one bit ---

/// `GETBIT`: replies with the bit, 0 beyond the end.
fn getbit(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let place = place(context, argv[2])?;
    let value = context.read_as::<StringValue>(argv[1])?;
    Ok(Reply::from(value.is_some_and(|value| bit(value.bytes(), place) == 1)))
}

/// `SETBIT`: replies with the previous bit.
fn setbit(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let place = place(context, argv[2])?;
    let on = match integer(argv[3]) {
        Ok(0) => false,
        Ok(1) => true,
        _ => return Err(Error::line("ERR bit is not an integer or out of range")),
    };
    let (slot, grown) = open(context, argv[1], place)?;
    let old = bit(bytes_at(context, slot), place) == 1;
    if grown || old != on {
        write_bits(context, slot, place, 1, u64::from(on))?;
        context.changed(Events::STRING, "setbit", argv[1]);
    }
    Ok(old.into())
}

/// Parses the offset of a bit in a string that may become that long.
fn place(context: &Context<'_>, argument: &[u8]) -> Result<u64, Error> {
    const INVALID: Error = Error::line("ERR bit offset is not an integer or out of range");
    let place = number::parse_integer(argument).and_then(|place| u64::try_from(place).ok());
    let bytes_max = context.settings().proto_max_bulk_len_bytes;
    place.filter(|place| place >> 3 < bytes_max).ok_or(INVALID)
}

/// The slot of a string that is about to be changed in place, extended to the bit at `last`; and
/// whether it was extended.
fn open(context: &mut Context<'_>, key: &[u8], last: u64) -> Result<(Slot, bool), Error> {
    let length = usize::try_from((last >> 3) + 1).map_err(|_| Error::OutOfMemory)?;
    match context.find_to_write::<StringValue>(key)?.map(|(slot, text)| (slot, text.len())) {
        Some((slot, before)) => {
            let grows = before < length;
            let (offset, bytes) = if grows { (length - 1, &[0][..]) } else { (0, &[][..]) };
            context.patch(slot, offset, bytes)?;
            Ok((slot, grows))
        }
        None => {
            let bytes = StringValue::Raw(zeros(length)?);
            Ok((context.add(key, NewValue::Value(bytes.into())), true))
        }
    }
}

/// The bytes of the string in a slot.
fn bytes_at<'c>(context: &'c Context<'_>, slot: Slot) -> &'c [u8] {
    StringValue::of(context.record(slot).value()).map(Text::bytes).unwrap_or_default()
}

/// Sets `count` bits from `place` on of the string in a slot, which must be long enough.
fn write_bits(
    context: &mut Context<'_>,
    slot: Slot,
    place: u64,
    count: u32,
    bits: u64,
) -> Result<(), Error> {
    let start = (place >> 3) as usize;
    let end = ((place + u64::from(count) - 1) >> 3) as usize;
    let mut bytes: SmallVec<[u8; 9]> = bytes_at(context, slot)[start..=end].into();
    set_bits(&mut bytes, place & 7, count, bits);
    context.patch(slot, start, &bytes).map(drop)
}

/// The bit at an offset: 0 beyond the end.
fn bit(bytes: &[u8], place: u64) -> u8 {
    let byte = usize::try_from(place >> 3).ok().and_then(|at| bytes.get(at));
    byte.map_or(0, |byte| byte >> (7 - (place & 7)) & 1)
}

// --- many bits ---

/// `BITCOUNT`: replies with the number of bits that are set.
fn bitcount(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let range = match argv[2..] {
        [] => None,
        [first, last] => Some((integer(first)?, integer(last)?, false)),
        [first, last, unit] => Some((integer(first)?, integer(last)?, is_bits(unit)?)),
        _ => return Err(Error::Syntax),
    };
    let Some(value) = context.read_as::<StringValue>(argv[1])? else { return Ok(false.into()) };
    let bytes = value.bytes();
    let (first, last, in_bits) = range.unwrap_or((0, -1, false));
    if first < 0 && last < 0 && first > last {
        return Ok(false.into());
    }
    let part = Part::of(bytes, first, last, in_bits);
    let count = part.map_or(0, |part| part.bytes(false).map(|(_, byte)| byte.count_ones()).sum());
    Ok(Reply::from(i64::from(count)))
}

/// `BITPOS`: replies with the offset of the first such bit, or -1.
fn bitpos(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let wanted = integer(argv[2])?;
    if wanted != 0 && wanted != 1 {
        return Err(Error::line("ERR The bit argument must be 1 or 0."));
    }
    let clear = wanted == 0;
    let (first, last, in_bits) = match argv[3..] {
        [] => (0, None, false),
        [first] => (integer(first)?, None, false),
        [first, last] => (integer(first)?, Some(integer(last)?), false),
        [first, last, unit] => {
            let (first, in_bits) = (integer(first)?, is_bits(unit)?);
            (first, Some(integer(last)?), in_bits)
        }
        _ => return Err(Error::Syntax),
    };
    // A missing string counts as an infinite sequence of zeros.
    let Some(value) = context.read_as::<StringValue>(argv[1])? else {
        return Ok(Reply::Integer(if clear { 0 } else { -1 }));
    };
    let bytes = value.bytes();
    let Some(part) = Part::of(bytes, first, last.unwrap_or(-1), in_bits) else {
        return Ok(Reply::Integer(-1));
    };
    let found = part
        .bytes(clear)
        .find(|(_, byte)| *byte != 0)
        .map(|(at, byte)| at as i64 * 8 + i64::from(byte.leading_zeros()));
    // The bits after the string count as clear, unless an end was given.
    let after_end = (clear && last.is_none()).then_some(bytes.len() as i64 * 8);
    Ok(Reply::Integer(found.or(after_end).unwrap_or(-1)))
}

/// Parses the unit; returns whether offsets are in bits.
fn is_bits(unit: &[u8]) -> Result<bool, Error> {
    match unit {
        _ if is(unit, "bit") => Ok(true),
        _ if is(unit, "byte") => Ok(false),
        _ => Err(Error::Syntax),
    }
}

/// A part of a string that begins and ends at any bit.
struct Part<'a> {
    bytes: &'a [u8],
    first_bit: usize,
    last_bit: usize,
}

impl<'a> Part<'a> {
    /// The part from `first` to `last`, in bits or bytes; negative ones count from the end. `None`
    /// if it is empty.
    fn of(bytes: &'a [u8], first: i64, last: i64, in_bits: bool) -> Option<Part<'a>> {
        let length = if in_bits { bytes.len() * 8 } else { bytes.len() } as i64;
        let from_start = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
        let (first, last) = (from_start(first), from_start(last).min(length - 1));
        if first > last {
            return None;
        }
        let (first, last) = (first as usize, last as usize);
        Some(match in_bits {
            true => Part { bytes, first_bit: first, last_bit: last },
            false => Part { bytes, first_bit: first * 8, last_bit: last * 8 + 7 },
        })
    }

    /// The bytes of the part with their positions, inverted if requested; bits outside the part are
    /// 0.
    fn bytes(&self, inverted: bool) -> impl Iterator<Item = (usize, u8)> {
        let (first, last) = (self.first_bit / 8, self.last_bit / 8);
        let (first_mask, last_mask) =
            (0xff_u8 >> (self.first_bit % 8), 0xff_u8 << (7 - self.last_bit % 8));
        (first..=last).zip(&self.bytes[first..=last]).map(move |(at, &byte)| {
            let mut byte = if inverted { !byte } else { byte };
            if at == first {
                byte &= first_mask;
            }
            if at == last {
                byte &= last_mask;
            }
            (at, byte)
        })
    }
}

/// `BITOP`: stores the result and replies with its length.
fn bitop(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (destination, keys) = (argv[2], &argv[3..]);
    let join: fn(u8, u8) -> u8 = match argv[1] {
        name if is(name, "and") => |a, b| a & b,
        name if is(name, "or") => |a, b| a | b,
        name if is(name, "xor") => |a, b| a ^ b,
        name if is(name, "not") => |a, _| !a,
        _ => return Err(Error::Syntax),
    };
    if is(argv[1], "not") && keys.len() > 1 {
        return Err(Error::line("ERR BITOP NOT must be called with a single source key."));
    }
    let found = context.read_all_as::<StringValue>(keys)?;
    let strings: Vec<&[u8]> =
        found.into_iter().map(|it| it.map(Text::bytes).unwrap_or_default()).collect();
    let length = strings.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
    let at = |string: &[u8], place: usize| string.get(place).copied().unwrap_or(0);
    let mut result = zeros(length)?;
    result[..strings[0].len()].copy_from_slice(strings[0]);
    // NOT has one string, which is combined with itself without effect.
    let others = if is(argv[1], "not") { &strings[..] } else { &strings[1..] };
    for string in others {
        for (place, byte) in result.iter_mut().enumerate() {
            *byte = join(*byte, at(string, place));
        }
    }
    if length > 0 {
        context.set(destination, NewValue::Value(StringValue::Raw(result).into()))?;
        context.changed(Events::STRING, "set", destination);
    } else if context.clear(destination)? {
        context.changed(Events::GENERIC, "del", destination);
    }
    Ok(length.into())
}

// --- integers among the bits ---

/// Whether all operations of a `BITFIELD` are `GET`.
fn only_reads(operations: &[&[u8]]) -> bool {
    let mut operations = operations;
    while let [word, after @ ..] = operations {
        operations = match after {
            [_, _, after @ ..] if is(word, "get") => after,
            [_, after @ ..] if is(word, "overflow") => after,
            _ => return false,
        };
    }
    true
}

/// One of the operations of `BITFIELD`.
struct Operation {
    kind: OperationKind,
    integer: Integer,
    place: u64,
    overflow: Overflow,
}

enum OperationKind {
    Get,
    Set(i64),
    Increment(i64),
}

/// The handling of a result that is too large or too small.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

/// An integer type, such as `i16` or `u8`.
#[derive(Clone, Copy)]
struct Integer {
    signed: bool,
    bits: u32,
}

/// `BITFIELD` and `BITFIELD_RO`: reply with a result for each operation.
fn bitfield(context: &mut Context<'_>, argv: &[&[u8]], read_only: bool) -> Result<Reply, Error> {
    let key = argv[1];
    let operations = operations(context, &argv[2..])?;
    let writes = operations.iter().filter(|it| !matches!(it.kind, OperationKind::Get));
    let last = writes.map(|it| it.place + u64::from(it.integer.bits) - 1).max();
    let Some(last) = last else {
        let value = context.read_as::<StringValue>(key)?;
        let bytes = value.map(Text::bytes).unwrap_or_default();
        let get = |it: &Operation| Reply::Integer(it.integer.read(bytes, it.place) as i64);
        return Ok(Reply::Array(operations.iter().map(get).collect()));
    };
    if read_only {
        return Err(Error::line("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let (slot, grown) = open(context, key, last)?;
    let mut changed = false;
    let mut replies = Vec::with_capacity(operations.len());
    for Operation { kind, integer, place, overflow } in &operations {
        let old = integer.read(bytes_at(context, slot), *place);
        let (new, shows_old) = match *kind {
            OperationKind::Get => (Some(old), true),
            OperationKind::Set(value) => (integer.fit(integer.of(value), *overflow), true),
            OperationKind::Increment(by) => (integer.fit(old + i128::from(by), *overflow), false),
        };
        let Some(new) = new else {
            replies.push(Reply::Null);
            continue;
        };
        if !matches!(kind, OperationKind::Get) {
            if new != old {
                write_bits(context, slot, *place, integer.bits, new as u64)?;
            }
            changed |= grown || new != old;
        }
        replies.push(Reply::Integer(if shows_old { old } else { new } as i64));
    }
    if changed {
        context.changed(Events::STRING, "setbit", key);
    }
    Ok(Reply::Array(replies))
}

/// Parses all operations before the first is run.
fn operations(context: &Context<'_>, mut rest: &[&[u8]]) -> Result<Vec<Operation>, Error> {
    let mut overflow = Overflow::Wrap;
    let mut operations = Vec::new();
    while let [word, after @ ..] = rest {
        let arguments = one_of(word, [("get", 2), ("set", 3), ("incrby", 3), ("overflow", 1)]);
        let arguments = after.split_at_checked(arguments.ok_or(Error::Syntax)?);
        let (arguments, after) = arguments.ok_or(Error::Syntax)?;
        rest = after;
        let [kind, place, value @ ..] = arguments else {
            overflow = Overflow::parse(arguments[0])?;
            continue;
        };
        let integer_kind = Integer::parse(kind)?;
        let place = place_of(context, place, integer_kind)?;
        let kind = match value {
            [] => OperationKind::Get,
            [value, ..] if is(word, "set") => OperationKind::Set(integer(value)?),
            [value, ..] => OperationKind::Increment(integer(value)?),
        };
        operations.push(Operation { kind, integer: integer_kind, place, overflow });
    }
    Ok(operations)
}

/// Parses the offset of an integer: that of its first bit or, after `#`, the number of integers of
/// its type before it.
fn place_of(context: &Context<'_>, argument: &[u8], kind: Integer) -> Result<u64, Error> {
    let Some(count) = argument.strip_prefix(b"#") else { return place(context, argument) };
    let bit = number::parse_integer(count).and_then(|count| count.checked_mul(kind.bits.into()));
    // An offset that does not fit gives the same error as any invalid offset.
    place(context, itoa::Buffer::new().format(bit.unwrap_or(-1)).as_bytes())
}

impl Overflow {
    fn parse(word: &[u8]) -> Result<Overflow, Error> {
        match word {
            _ if is(word, "wrap") => Ok(Overflow::Wrap),
            _ if is(word, "sat") => Ok(Overflow::Saturate),
            _ if is(word, "fail") => Ok(Overflow::Fail),
            _ => Err(Error::line("ERR Invalid OVERFLOW type specified")),
        }
    }
}

impl Integer {
    fn parse(word: &[u8]) -> Result<Integer, Error> {
        const INVALID: Error = Error::line(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not \
             supported but i64 is.",
        );
        let (signed, bits_max, digits) = match word {
            [b'i', digits @ ..] => (true, 64, digits),
            [b'u', digits @ ..] => (false, 63, digits),
            _ => return Err(INVALID),
        };
        let bits = number::parse_integer(digits).and_then(|bits| u32::try_from(bits).ok());
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits)).ok_or(INVALID)?;
        Ok(Integer { signed, bits })
    }

    /// The integer at an offset.
    fn read(self, bytes: &[u8], place: u64) -> i128 {
        let places = place..place + u64::from(self.bits);
        let bits = places.fold(0_u64, |bits, at| bits << 1 | u64::from(bit(bytes, at)));
        self.wrap(bits)
    }

    /// The value of these low bits.
    fn wrap(self, bits: u64) -> i128 {
        let unused = 64 - self.bits;
        if self.signed {
            i128::from((bits << unused) as i64 >> unused)
        } else {
            i128::from(bits << unused >> unused)
        }
    }

    /// A value given by a client: a negative one wraps around if the type is unsigned.
    fn of(self, value: i64) -> i128 {
        if self.signed { i128::from(value) } else { i128::from(value as u64) }
    }

    /// The value after overflow handling; `None` if it does not fit and must.
    fn fit(self, value: i128, overflow: Overflow) -> Option<i128> {
        let value_bits = if self.signed { self.bits - 1 } else { self.bits };
        let max = (1_i128 << value_bits) - 1;
        let min = if self.signed { -max - 1 } else { 0 };
        match overflow {
            _ if (min..=max).contains(&value) => Some(value),
            Overflow::Wrap => Some(self.wrap(value as u64)),
            Overflow::Saturate => Some(value.clamp(min, max)),
            Overflow::Fail => None,
        }
    }
}

/// Writes the `count` low bits of `bits` at an offset within `bytes`.
fn set_bits(bytes: &mut [u8], place: u64, count: u32, bits: u64) {
    for (at, shift) in (place..).zip((0..count).rev()) {
        let byte = &mut bytes[(at >> 3) as usize];
        let mask = 0x80 >> (at & 7);
        *byte = if bits >> shift & 1 == 1 { *byte | mask } else { *byte & !mask };
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check, check_events};

    #[test]
    fn string_grows_no_longer_than_the_longest_bulk_string() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.proto_max_bulk_len_bytes = 2;
        stage.check("SETBIT k 15 1 => 0; SETBIT k 16 1 => !ERR bit offset ...");
        stage.check("BITFIELD k SET u8 15 255 GET u8 #1 => [128, 1]; BITFIELD k GET u8 #2 => !...");
    }

    #[test]
    fn parts_begin_and_end_at_any_bit() {
        let text = [0b1010_0111_u8, 0b0000_0000, 0b1100_0001];
        let bit = |at: usize| text[at / 8] >> (7 - at % 8) & 1;
        let mut stage = Stage::new(Settings::default());
        stage.check("SET k \"\\xa7\\x00\\xc1\"");
        for first in 0..24 {
            for last in 0..24 {
                let range = || first..=last;
                let count: u8 = range().map(bit).sum();
                stage.check(&format!("BITCOUNT k {first} {last} BIT => {count}"));
                for wanted in [0, 1] {
                    let found = range().find(|&at| bit(at) == wanted);
                    let found = found.map_or(-1, |at| at as i64);
                    stage.check(&format!("BITPOS k {wanted} {first} {last} BIT => {found}"));
                }
            }
        }
    }

    #[test]
    fn integers_keep_their_width() {
        for bits in [1_u32, 5, 8, 31, 63] {
            let (max, top) = ((1_i64 << (bits - 1)) - 1, ((1_u64 << bits) - 1) as i64);
            let least = -max - 1;
            for (kind, low, high) in [("i", least, max), ("u", 0, top)] {
                let field = format!("{kind}{bits} 3");
                check(&format!(
                    "BITFIELD k SET {field} {high} INCRBY {field} 1 INCRBY {field} -1 => \
                       [0, {low}, {high}]"
                ));
                check(&format!(
                    "BITFIELD k OVERFLOW SAT SET {field} {low} INCRBY {field} -1 \
                       INCRBY {field} 9223372036854775807 => [0, {low}, ...]"
                ));
                check(&format!(
                    "BITFIELD k SET {field} {high} OVERFLOW FAIL INCRBY {field} 1 GET {field} => \
                       [0, nil, {high}]"
                ));
            }
        }
        check(
            "BITFIELD k SET i64 1 -2 INCRBY i64 1 -9223372036854775807 => [0, 9223372036854775807]",
        );
        check("BITFIELD k OVERFLOW SAT SET u8 0 -1 GET u8 0 => [0, 255]");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("SETBIT k 0 0", "new k, setbit k"),
            ("SETBIT k 0 0", ""),
            ("SETBIT k 8 0", "setbit k"),
            ("GETBIT x 1", "keymiss x"),
            ("BITOP AND d k x", "keymiss x, new d, set d"),
            ("BITOP OR d x", "keymiss x, del d"),
            ("BITOP OR d x", "keymiss x"),
            ("BITFIELD x GET u8 0", "keymiss x"),
            ("BITFIELD k SET u8 0 0 GET u8 0", ""),
            ("BITFIELD k INCRBY u8 0 1", "setbit k"),
            ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 -5", ""),
            ("BITFIELD y OVERFLOW FAIL INCRBY u8 0 -5", "new y"),
        ]);
        check(
            "SETBIT k 0 0; WATCH k; b> SETBIT k 0 0; b> BITFIELD k SET u8 0 0; MULTI; EXEC => []",
        );
        check("WATCH d; SET k a; b> BITOP NOT d k; MULTI; EXEC => nil-array");
    }
}
