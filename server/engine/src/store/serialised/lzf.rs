//! LZF compression: repeated bytes are replaced by a distance and a length, others are copied.

use super::read::Malformed;

/// The maximum distance to the start of a repetition.
const DISTANCE_MAX: usize = 1 << 13;
/// The length in bytes of the shortest and the longest repetition.
const REPEAT: std::ops::RangeInclusive<usize> = 3..=264;
/// The maximum number of literal bytes after one control byte.
const KEPT_MAX: usize = 32;
/// Length from which a repetition has its length in a byte of its own, and not in the control byte.
const SHORT: usize = 7;

/// Compresses the bytes; `None` if that would save fewer than four of them.
pub(super) fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let room = bytes.len().checked_sub(4)?;
    let mut out = Vec::with_capacity(room);
    // Where three bytes were last seen, by their hash, plus 1; 0 is nowhere.
    let bits = bytes.len().next_power_of_two().trailing_zeros().clamp(4, 14);
    let mut seen = vec![0_usize; 1 << bits];
    let (mut at, mut kept_from) = (0, 0);
    while at + REPEAT.start() <= bytes.len() {
        let three = u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
        let hash = (three.wrapping_mul(0x9E37_79B1) >> (32 - bits)) as usize;
        let candidate = std::mem::replace(&mut seen[hash], at + 1);
        let length = match candidate.checked_sub(1) {
            Some(from) if at - from <= DISTANCE_MAX => repeated(bytes, from, at),
            _ => 0,
        };
        if length < *REPEAT.start() {
            at += 1;
            continue;
        }
        keep(&mut out, &bytes[kept_from..at]);
        repeat(&mut out, at + 1 - candidate, length);
        at += length;
        kept_from = at;
        if out.len() > room {
            return None;
        }
    }
    keep(&mut out, &bytes[kept_from..]);
    (out.len() <= room).then_some(out)
}

/// The number of bytes at `at` that are equal to those at `from`.
fn repeated(bytes: &[u8], from: usize, at: usize) -> usize {
    let pairs = bytes[from..].iter().zip(&bytes[at..]).take(*REPEAT.end());
    pairs.take_while(|(a, b)| a == b).count()
}

fn keep(out: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.chunks(KEPT_MAX) {
        out.push(part.len() as u8 - 1);
        out.extend(part);
    }
}

fn repeat(out: &mut Vec<u8>, distance: usize, length: usize) {
    let (far, near) = (((distance - 1) >> 8) as u8, (distance - 1) as u8);
    let length = length - 2;
    out.push((length.min(SHORT) as u8) << 5 | far);
    if length >= SHORT {
        out.push((length - SHORT) as u8);
    }
    out.push(near);
}

/// Decompresses bytes, which must result in `length` bytes.
pub(super) fn decompress(compressed: &[u8], length: usize) -> Result<Vec<u8>, Malformed> {
    // No byte results in more than `REPEAT.end()` bytes, so no room is allocated for a greater
    // length.
    if length / *REPEAT.end() > compressed.len() {
        return Err(Malformed);
    }
    let mut out = Vec::with_capacity(length);
    let mut rest = compressed.iter();
    let mut next = || rest.next().copied().ok_or(Malformed);
    while let Ok(control) = next() {
        let control = usize::from(control);
        if control < KEPT_MAX {
            for _ in 0..=control {
                out.push(next()?);
            }
        } else {
            let mut count = control >> 5;
            if count == SHORT {
                count += usize::from(next()?);
            }
            let distance = ((control & 0x1f) << 8 | usize::from(next()?)) + 1;
            let from = out.len().checked_sub(distance).ok_or(Malformed)?;
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > length {
            return Err(Malformed);
        }
    }
    if out.len() == length { Ok(out) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn repetitive_bytes_are_compressed() {
        let text = b"abcabcabcabcabcabcabcabc";
        let compressed = compress(text).expect("it repeats");
        assert_eq!(compressed, [&b"\x02abc"[..], &[7 << 5, 21 - 2 - 7, 2]].concat());
        assert_eq!(decompress(&compressed, text.len()), Ok(text.to_vec()));
        assert_eq!(compress(b"abcdefghijklmnopqrstuvwxyz"), None);
        assert_eq!(compress(b"aaa"), None);
        let zeros = vec![0; 1 << 20];
        let compressed = compress(&zeros).expect("it repeats");
        assert!(compressed.len() < zeros.len() / 80, "{}", compressed.len());
        assert_eq!(decompress(&compressed, zeros.len()), Ok(zeros));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        for (compressed, length) in [
            (&b"\x00"[..], 1),
            (b"\x00a", 2),
            (b"\x00a", 0),
            (b"\x01a", 2),
            (b"\x20\x00", 3),
            (b"\x00a\x20\x01", 4),
            (b"\x00a\xe0\x00", 10),
            (b"\x00a\x20", 4),
            (b"", 1),
            (b"\x00a", usize::MAX),
        ] {
            assert_eq!(decompress(compressed, length), Err(Malformed), "{compressed:?}");
        }
    }

    proptest! {
        #[test]
        fn decompressed_bytes_equal_the_original(
            parts in prop::collection::vec((any::<u8>(), 1..400_usize, 0..5_usize), 0..60),
        ) {
            let mut bytes: Vec<u8> = Vec::new();
            for (byte, count, back) in parts {
                let from = bytes.len().saturating_sub(back * 700);
                let again: Vec<u8> = bytes[from..].iter().take(count).copied().collect();
                bytes.extend(again);
                bytes.extend(std::iter::repeat_n(byte, count % 5));
            }
            if let Some(compressed) = compress(&bytes) {
                prop_assert!(compressed.len() + 4 <= bytes.len());
                prop_assert_eq!(decompress(&compressed, bytes.len()), Ok(bytes));
            }
        }
    }
}
