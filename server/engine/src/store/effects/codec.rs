//! The byte form of effects: numbers of variable length, and byte strings with their length in
//! front. A decoder reads any bytes and ends with a value or an error.

use crate::store::list::End;
use crate::store::serialised::Malformed;
use crate::store::stream::id::StreamId;
use crate::timing::time::Millis;

/// The bits of a number in one byte; the eighth says that more follow.
const NUMBER_BITS: u32 = 7;
const MORE: u8 = 1 << NUMBER_BITS;

/// A value with a byte form.
pub(in crate::store) trait Field<'a>: Sized {
    /// Appends the byte form.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads a value and removes its bytes from `from`.
    fn decode(from: &mut &'a [u8]) -> Result<Self, Malformed>;
}

impl Field<'_> for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= u64::from(MORE) {
            out.push(rest as u8 | MORE);
            rest >>= NUMBER_BITS;
        }
        out.push(rest as u8);
    }

    fn decode(from: &mut &[u8]) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(NUMBER_BITS as usize) {
            let byte = u8::decode(from)?;
            let bits = u64::from(byte & !MORE);
            if bits << shift >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte & MORE == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }
}

impl Field<'_> for u8 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn decode(from: &mut &[u8]) -> Result<u8, Malformed> {
        let (&byte, rest) = from.split_first().ok_or(Malformed)?;
        *from = rest;
        Ok(byte)
    }
}

impl Field<'_> for usize {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u64).encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<usize, Malformed> {
        usize::try_from(u64::decode(from)?).map_err(|_| Malformed)
    }
}

/// Zigzag, so that small negative numbers are short, too.
impl Field<'_> for i64 {
    fn encode(&self, out: &mut Vec<u8>) {
        ((self << 1) ^ (self >> (i64::BITS - 1))).cast_unsigned().encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<i64, Malformed> {
        let number = u64::decode(from)?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }
}

impl Field<'_> for f64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn decode(from: &mut &[u8]) -> Result<f64, Malformed> {
        let (bytes, rest) = from.split_first_chunk().ok_or(Malformed)?;
        *from = rest;
        Ok(f64::from_le_bytes(*bytes))
    }
}

impl Field<'_> for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(from: &mut &[u8]) -> Result<bool, Malformed> {
        match u8::decode(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn encode(&self, out: &mut Vec<u8>) {
        self.len().encode(out);
        out.extend_from_slice(self);
    }

    fn decode(from: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
        let length = usize::decode(from)?;
        let (bytes, rest) = from.split_at_checked(length).ok_or(Malformed)?;
        *from = rest;
        Ok(bytes)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(from: &mut &'a [u8]) -> Result<Option<T>, Malformed> {
        bool::decode(from)?.then(|| T::decode(from)).transpose()
    }
}

impl Field<'_> for Millis {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<Millis, Malformed> {
        i64::decode(from).map(Millis)
    }
}

impl Field<'_> for StreamId {
    fn encode(&self, out: &mut Vec<u8>) {
        self.ms.encode(out);
        self.seq.encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<StreamId, Malformed> {
        Ok(StreamId { ms: u64::decode(from)?, seq: u64::decode(from)? })
    }
}

impl Field<'_> for End {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self == End::Right).encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<End, Malformed> {
        Ok(if bool::decode(from)? { End::Right } else { End::Left })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survives<'a, T: Field<'a> + PartialEq + std::fmt::Debug>(value: &T, out: &'a mut Vec<u8>) {
        value.encode(out);
        let mut rest = &out[..];
        assert_eq!(T::decode(&mut rest).as_ref(), Ok(value));
        assert!(rest.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn encoded_fields_decode_to_themselves(
            a: u64,
            b: i64,
            c in -1e300..1e300,
            d: Option<bool>,
            e: Vec<u8>,
        ) {
            survives(&a, &mut Vec::new());
            survives(&b, &mut Vec::new());
            survives(&c, &mut Vec::new());
            survives(&d, &mut Vec::new());
            survives(&&e[..], &mut Vec::new());
            survives(&StreamId { ms: a, seq: b.cast_unsigned() }, &mut Vec::new());
        }

        #[test]
        fn decoders_accept_any_bytes(bytes: Vec<u8>) {
            let _ = u64::decode(&mut &bytes[..]);
            let _ = <&[u8]>::decode(&mut &bytes[..]);
            let _ = Option::<i64>::decode(&mut &bytes[..]);
        }
    }
}
