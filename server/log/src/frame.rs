//! The format of a frame: a header, and contents that the log does not interpret.
//!
//! All numbers are little-endian. The checksum covers everything behind it, including the checksum
//! of the previous frame: missing frames and frames in the wrong order are detected, too.

/// The length of a header, in bytes.
pub const HEADER_BYTES: usize = 68;

/// The first bytes of every frame.
const MAGIC: [u8; 4] = *b"LWf1";

/// What a frame contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The beginning of a file: [`Beginning`].
    Beginning,
    /// Effects of units.
    Units,
    /// A part of a snapshot: effects that give the state, applied to an empty one.
    Part,
    /// The end of a snapshot. Without it the snapshot is not complete.
    End,
}

const KINDS: [Kind; 4] = [Kind::Beginning, Kind::Units, Kind::Part, Kind::End];

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame contains.
    pub kind: Kind,
    /// The number of the first unit in the frame.
    pub first: u64,
    /// The number of the last unit in the frame; in a snapshot, and at the beginning of a segment,
    /// that of the last unit before it.
    pub last: u64,
    /// The number of the last unit that was durable when this frame was written.
    pub flushed: u64,
    /// The lease clock after the last unit, in milliseconds.
    pub lease_ms: i64,
    /// The time since the machine was started then, in milliseconds.
    pub boot_ms: i64,
    /// The wall clock then, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// A frame as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The contents.
    pub contents: &'a [u8],
    /// The checksum of the frame before it.
    pub previous: u32,
    /// The checksum of this frame.
    pub checksum: u32,
    /// The bytes of the frame, with its header.
    pub bytes: &'a [u8],
}

/// The result of looking for a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The frame at the beginning of the bytes, and its length.
    Frame(Frame<'a>, usize),
    /// The bytes end within the frame.
    Incomplete,
    /// No frame begins here.
    Damaged,
}

/// Writes the header of a frame into the first [`HEADER_BYTES`] of `frame`; the contents follow
/// already. Returns the checksum.
pub fn seal(frame: &mut [u8], header: &Header, previous: u32) -> u32 {
    let length = u32::try_from(frame.len() - HEADER_BYTES).expect("within FRAME_BYTES_MAX");
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&length.to_le_bytes());
    let kind = KINDS.iter().position(|kind| *kind == header.kind).unwrap_or_default();
    out.extend_from_slice(&(kind as u32).to_le_bytes());
    out.extend_from_slice(&header.first.to_le_bytes());
    out.extend_from_slice(&header.last.to_le_bytes());
    out.extend_from_slice(&header.flushed.to_le_bytes());
    out.extend_from_slice(&header.lease_ms.to_le_bytes());
    out.extend_from_slice(&header.boot_ms.to_le_bytes());
    out.extend_from_slice(&header.wall_ms.to_le_bytes());
    out.extend_from_slice(&previous.to_le_bytes());
    frame[..HEADER_BYTES].copy_from_slice(&out);
    let checksum = crc32c::crc32c(&frame[COVERED..]);
    frame[4..COVERED].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// The offset in a frame from which on the checksum covers it.
const COVERED: usize = 8;

/// Parses the frame at the beginning of `bytes`. The caller must compare the checksum of the
/// previous frame.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
        return Parsed::Incomplete;
    };
    let mut at = 0;
    let mut next = |length: usize| {
        at += length;
        &header[at - length..at]
    };
    if next(4) != MAGIC {
        return Parsed::Damaged;
    }
    let checksum = u32_of(next(4));
    let length = u32_of(next(4)) as usize;
    let kind = u32_of(next(4)) as usize;
    if rest.len() < length {
        return Parsed::Incomplete;
    }
    let frame = &bytes[..HEADER_BYTES + length];
    let is_intact = || {
        lockwheel_defects::defect!(ChecksumNotChecked)
            || crc32c::crc32c(&frame[COVERED..]) == checksum
    };
    let Some(&kind) = KINDS.get(kind).filter(|_| is_intact()) else {
        return Parsed::Damaged;
    };
    let header = Header {
        kind,
        first: u64_of(next(8)),
        last: u64_of(next(8)),
        flushed: u64_of(next(8)),
        lease_ms: u64_of(next(8)).cast_signed(),
        boot_ms: u64_of(next(8)).cast_signed(),
        wall_ms: u64_of(next(8)).cast_signed(),
    };
    let previous = u32_of(next(4));
    let contents = &frame[HEADER_BYTES..];
    Parsed::Frame(Frame { header, contents, previous, checksum, bytes: frame }, frame.len())
}

/// The length in bytes of the frame at the beginning of `bytes`, without checks; `None` if no frame
/// begins there.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let header = bytes.strip_prefix(&MAGIC)?.get(4..8)?;
    (u32_of(header) as usize).checked_add(HEADER_BYTES)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The contents of the first frame of every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The version of the format: [`VERSION`].
    pub version: u32,
    /// Number of starts of servers with this log, and of its repairs.
    pub epoch: u64,
    /// Identifies the boot of the machine: [`Header::boot_ms`] is comparable within one boot.
    pub boot_id: [u8; 16],
}

/// The version of the format that is written.
pub const VERSION: u32 = 1;

impl Beginning {
    /// The length of the frame that contains a beginning, in bytes.
    pub(crate) const FRAME_BYTES: u64 = HEADER_BYTES as u64 + 4 + 8 + 16;

    /// Appends the bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.boot_id);
    }

    /// Reads what [`Beginning::encode`] has written. Of another version only the number is read.
    pub fn decode(bytes: &[u8]) -> Option<Beginning> {
        let (version, rest) = bytes.split_at_checked(4)?;
        let version = u32_of(version);
        if version != VERSION {
            return Some(Beginning { version, epoch: 0, boot_id: [0; 16] });
        }
        let (epoch, boot_id) = rest.split_at_checked(8)?;
        Some(Beginning { version, epoch: u64_of(epoch), boot_id: boot_id.try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> (Vec<u8>, Header) {
        let header = Header {
            kind: Kind::Units,
            first: 3,
            last: 5,
            flushed: 2,
            lease_ms: -1,
            boot_ms: i64::MAX,
            wall_ms: 5,
        };
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(b"effects");
        seal(&mut bytes, &header, 77);
        (bytes, header)
    }

    #[test]
    fn frame_is_parsed_back() {
        let (bytes, header) = frame();
        let Parsed::Frame(frame, length) = parse(&bytes) else { panic!("a frame") };
        assert_eq!((frame.header, frame.contents, length), (header, &b"effects"[..], bytes.len()));
        assert_eq!(frame.previous, 77);
    }

    #[test]
    fn every_changed_bit_is_found() {
        let (bytes, _) = frame();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(parse(&damaged), Parsed::Frame(..)), "bit {bit}");
        }
    }

    #[test]
    fn beginnings_are_incomplete() {
        let (bytes, _) = frame();
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end]), Parsed::Incomplete);
        }
        assert_eq!(length(&bytes), Some(bytes.len()));
    }

    #[test]
    fn beginning_is_decoded() {
        let beginning = Beginning { version: VERSION, epoch: 9, boot_id: [4; 16] };
        let mut bytes = Vec::new();
        beginning.encode(&mut bytes);
        assert_eq!(Beginning::decode(&bytes), Some(beginning));
        assert_eq!(Beginning::decode(&bytes[..10]), None);
    }
}
