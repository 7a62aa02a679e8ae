//! The hash slots of a cluster, and the rule that the keys of a request must share a slot. Not used
//! outside cluster mode.

use lockwheel_resp::number::parse_integer;

use crate::command::Command;
use crate::error::Error;

/// The number of slots.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: that of the text in its first pair of braces, unless it is empty.
pub fn slot_of(key: &[u8]) -> u16 {
    let hashed = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let tagged = &key[open + 1..];
        let length = tagged.iter().position(|&byte| byte == b'}')?;
        (length > 0).then(|| &tagged[..length])
    });
    crc16(hashed.unwrap_or(key)) % SLOTS
}

/// The slot of all keys and sharded channels of a request; `None` if it has none.
///
/// # Errors
/// If there is more than one slot.
pub fn slot_of_request(command: &Command, argv: &[&[u8]]) -> Result<Option<u16>, Error> {
    let mut slot = None;
    let mut places = Vec::new();
    for spec in command.keys {
        places.clear();
        // Malformed arguments are reported by the command itself.
        if spec.places(argv, &mut places) {
            let keys = places.iter().map(|&at| argv[at]);
            slot = keys.map(slot_of).try_fold(slot, |slot, next| join(slot, Some(next)))?;
        }
    }
    Ok(slot)
}

/// The common slot of two things.
///
/// # Errors
/// If they have different slots.
pub fn join(one: Option<u16>, other: Option<u16>) -> Result<Option<u16>, Error> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(Error::CrossSlot),
        _ => Ok(one.or(other)),
    }
}

/// Reads the number of a slot.
pub fn parse_slot(argument: &[u8]) -> Option<u16> {
    let number = u16::try_from(parse_integer(argument)?).ok()?;
    (number < SLOTS).then_some(number)
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)])
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in [
            ("123456789", 12739),
            ("a", 15495),
            ("x", 16287),
            ("foo{bar}baz", 5061),
            ("bar", 5061),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_the_first_braces_count_and_only_with_something_inside() {
        assert_eq!(slot_of(b"{user}.a"), slot_of(b"{user}.b"));
        assert_eq!(slot_of(b"a{{b}}c"), slot_of(b"{b"));
        assert_eq!(slot_of(b"{a}{b}"), slot_of(b"a"));
        for whole in [&b"{}{a}"[..], b"{a", b"a}", b"}a{"] {
            assert_eq!(slot_of(whole), crc16(whole) % SLOTS);
        }
    }
}
