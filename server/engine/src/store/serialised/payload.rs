//! A payload: a byte for the encoding, the value, the version of the format and a checksum. The
//! server writes what Redis 7.2 writes and reads all that it reads.

/// The version of the format that is written, and the latest that is read.
const VERSION: u16 = 11;

/// The first byte of a payload: the encoding of the rest.
pub(super) mod form {
    pub(crate) const STRING: u8 = 0;
    pub(crate) const LIST: u8 = 1;
    pub(crate) const SET: u8 = 2;
    pub(crate) const SORTED_SET_AS_TEXT: u8 = 3;
    pub(crate) const HASH: u8 = 4;
    pub(crate) const SORTED_SET: u8 = 5;
    pub(crate) const HASH_ZIPMAP: u8 = 9;
    pub(crate) const LIST_ZIPLIST: u8 = 10;
    pub(crate) const SET_INTSET: u8 = 11;
    pub(crate) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(crate) const HASH_ZIPLIST: u8 = 13;
    pub(crate) const LIST_OF_ZIPLISTS: u8 = 14;
    pub(crate) const STREAM: u8 = 15;
    pub(crate) const HASH_LISTPACK: u8 = 16;
    pub(crate) const SORTED_SET_LISTPACK: u8 = 17;
    pub(crate) const LIST_OF_LISTPACKS: u8 = 18;
    pub(crate) const STREAM_2: u8 = 19;
    pub(crate) const SET_LISTPACK: u8 = 20;
    pub(crate) const STREAM_3: u8 = 21;
    pub(crate) const LIBRARY: u8 = 245;
}

/// The encoding of a string if the first two bits of its length are set.
pub(super) mod encoding {
    pub(crate) const INT8: u8 = 0;
    pub(crate) const INT16: u8 = 1;
    pub(crate) const INT32: u8 = 2;
    pub(crate) const COMPRESSED: u8 = 3;
}

/// The encoding of a list node.
pub(super) mod node {
    pub(crate) const PLAIN: usize = 1;
    pub(crate) const PACKED: usize = 2;
}

/// The bytes of the version and the checksum.
pub const SEAL_BYTES: usize = size_of::<u16>() + size_of::<u64>();

/// Adds the version and the checksum.
pub fn seal(body: Vec<u8>) -> Vec<u8> {
    seal_as(VERSION, body)
}

/// As [`seal`], with any version.
pub fn seal_as(version: u16, mut body: Vec<u8>) -> Vec<u8> {
    body.extend(version.to_le_bytes());
    let checksum = crc64(&body);
    body.extend(checksum.to_le_bytes());
    body
}

/// Returns a payload without its version and checksum; `None` if either is wrong.
pub fn unseal(payload: &[u8]) -> Option<&[u8]> {
    let (checked, checksum) = payload.split_last_chunk()?;
    let (body, version) = checked.split_last_chunk()?;
    let is_known = u16::from_le_bytes(*version) <= VERSION;
    (is_known && crc64(checked) == u64::from_le_bytes(*checksum)).then_some(body)
}

/// The 64-bit cyclic redundancy check with the polynomial of Jones, low bits first.
fn crc64(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut rest, mut bit) = (byte as u64, 0);
            while bit < 8 {
                rest = if rest & 1 == 1 { rest >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { rest >> 1 };
                bit += 1;
            }
            table[byte] = rest;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::settings::Settings;
    use crate::store::dict::HashSeed;
    use crate::store::hash::SmallHashLimits;
    use crate::store::list::SmallListLimits;
    use crate::store::serialised::{Forms, read, write};
    use crate::store::set::SmallSetLimits;
    use crate::store::sorted_set::SmallSortedSetLimits;
    use crate::store::stream::nodes::NodeLimits;
    use crate::store::value::Value;
    use crate::testing::Stage;

    fn forms() -> Forms {
        Forms {
            hash: SmallHashLimits { entries_max: 8, value_bytes_max: 64 },
            list: SmallListLimits::from_directive(-2),
            set: SmallSetLimits { integers_max: 8, entries_max: 8, value_bytes_max: 64 },
            sorted_set: SmallSortedSetLimits { entries_max: 8, member_bytes_max: 64 },
            stream: NodeLimits { entries_max: 3, bytes_max: 4096 },
            seed: HashSeed(1, 2),
        }
    }

    fn payload_of(value: &Value) -> Vec<u8> {
        write(value.view()).expect("a value of a type that Redis has")
    }

    /// The value of `k` after some commands.
    fn made_by(commands: &str) -> Value {
        let mut stage = Stage::new(Settings::default());
        stage.check(commands);
        let slot = stage.engine.writer.keyspace().find(0, b"k").expect("set by the commands");
        stage.engine.writer.keyspace().database(0).record(slot).value().to_value()
    }

    /// The contents of a value, for comparisons.
    fn contents(value: &Value) -> Vec<Vec<u8>> {
        let mut contents: Vec<Vec<u8>> = match value {
            Value::String(string) => vec![string.text().bytes().to_vec()],
            Value::List(list) => return list.iter().map(<[u8]>::to_vec).collect(),
            Value::Stream(stream) => {
                // The entries may be distributed over nodes differently.
                let nodes = format!("{:?}", stream.nodes());
                return vec![format!("{stream:?}").replace(&nodes, "").into_bytes()];
            }
            Value::Lock(lock) => vec![format!("{lock:?}").into_bytes()],
            Value::Set(set) => set.iter().map(|member| member.into_owned()).collect(),
            Value::Hash(hash) => {
                hash.fields().iter().map(|(field, value)| [field, b"=", value].concat()).collect()
            }
            Value::SortedSet(set) => {
                set.iter().map(|(member, score)| [member, &score.to_le_bytes()].concat()).collect()
            }
        };
        contents.sort();
        contents
    }

    /// Payloads of a server of version 7.2.
    #[test]
    fn values_are_written_as_redis_writes_them() {
        for (commands, payload) in [
            ("SET k v", &b"\x00\x01v\x0b\x00\xf8\xd7s\xc1\xe4\xa7cG"[..]),
            ("SET k 12", b"\x00\xc0\x0c\x0b\x00U\xf5E\x22\xa1\x9bU\x5c"),
            ("SET k -129", b"\x00\xc1\x7f\xff\x0b\x00\x7e\xbf\x3f\x5b\xa9\x1fm\x09"),
            ("SET k 70000", b"\x00\xc2p\x11\x01\x00\x0b\x00h\x7b\xb5\x8dh\xaf\x7c,"),
            ("SET k 2147483648", b"\x00\x0a2147483648\x0b\x00\x8en\x94\xd0\xb1\x82\x9fg"),
            ("SET k 012", b"\x00\x03012\x0b\x00\xe6\x8b\xde\x9a\xa9\xe1\x02\x85"),
            (
                "SET k aaaaaaaaaaaaaaaaaaaa",
                b"\x00\x14aaaaaaaaaaaaaaaaaaaa\x0b\x00\xeak\xd6-\xe6\x8eEx",
            ),
            (
                "RPUSH k a 1 127 128 -1 4095 -4096 32767 8388607 2147483647 \
                 9223372036854775807 b",
                b"\x12\x01\x0266\x00\x00\x00\x0c\x00\x81a\x02\x01\x01\x7f\x01\xc0\x80\x02\xdf\xff\
                  \x02\xcf\xff\x02\xd0\x00\x02\xf1\xff\x7f\x03\xf2\xff\xff\x7f\x04\xf3\xff\xff\
                  \xff\x7f\x05\xf4\xff\xff\xff\xff\xff\xff\xff\x7f\x09\x81b\x02\xff\x0b\x00\xfa\
                  \xb9\xcb\xe6Z\x2f\x1cW",
            ),
            (
                "SADD k 3 1 2",
                b"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\x01\x00\x02\x00\x03\x00\x0b\x00\xcc\
                  \xdd\xe1\x91\x90\xf1\xa4\x92",
            ),
            (
                "SADD k 70000 1",
                b"\x0b\x10\x04\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00p\x11\x01\x00\x0b\x00N\
                  \xea\xfe\x1d\x00\xf9\xbfM",
            ),
            (
                "SADD k x 1 y",
                b"\x14\x0f\x0f\x00\x00\x00\x03\x00\x81x\x02\x01\x01\x81y\x02\xff\x0b\x00\xf4w\x1a\
                  \x25\x5btd\x20",
            ),
            (
                "HSET k f v n 10",
                b"\x10\x12\x12\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81n\x02\x0a\x01\xff\x0b\x00\
                  ,\x27\xff\xab\x17\x99zC",
            ),
            (
                "ZADD k -inf a -3 b 1e300 c",
                b"\x11\x21\x21\x00\x00\x00\x06\x00\x81a\x02\x84-inf\x05\x81b\x02\xdf\xfd\x02\x81c\
                  \x02\x861e+300\x07\xff\x0b\x00+\x97\x13\x02\x3e6\xaan",
            ),
            (
                "XADD k 5-1 f v g 10; XADD k 5-2 f w g 300; XADD k 7-0 h x; \
                 XGROUP CREATE k g 5-1 ENTRIESREAD 1",
                b"\x15\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\
                  \x40AA\x00\x00\x00\x19\x00\x03\x01\x00\x01\x02\x01\x81f\x02\x81g\x02\x00\x01\
                  \x02\x01\x00\x01\x00\x01\x81v\x02\x0a\x01\x05\x01\x02\x01\x00\x01\x01\x01\x81w\
                  \x02\xc1,\x02\x05\x01\x00\x01\x02\x01\xdf\xff\x02\x01\x01\x81h\x02\x81x\x02\x06\
                  \x01\xff\x03\x07\x00\x05\x01\x00\x00\x03\x01\x01g\x05\x01\x01\x00\x00\x0b\x00\
                  \x84\x88\xb3\xd4\xcb\xa8\xd5\xca",
            ),
        ] {
            let written = payload_of(&made_by(commands));
            assert_eq!(written.escape_ascii().to_string(), payload.escape_ascii().to_string());
        }
    }

    #[test]
    fn lengths_of_every_width_are_read_as_written() {
        for length in [0, 1, 63, 64, 100, 4095, 4096, 16_377, 16_378, 16_379, 16_383, 100_000] {
            let text: String =
                (0..length).map(|at| char::from(b'a' + (at % 23 * (at % 29) % 23) as u8)).collect();
            for commands in
                [format!("SET k \"{text}\""), format!("RPUSH k \"{text}\" 1 \"{text}\"")]
            {
                let value = made_by(&commands);
                let payload = payload_of(&value);
                let again = read(unseal(&payload).expect("sealed"), forms()).expect("well-formed");
                assert_eq!(contents(&again), contents(&value), "{length}");
            }
        }
    }

    /// Bodies of every encoding, current and legacy.
    fn samples() -> Vec<Vec<u8>> {
        let long = "abcabcabcabc".repeat(20);
        let many: String = (0..20).map(|n| format!(" {n} member:{n}")).collect();
        let written = [
            "SET k v".to_owned(),
            "SET k -70000".to_owned(),
            format!("SET k {long}"),
            format!("RPUSH k a 1 -500 99999 {long}"),
            "SADD k 1 70000 3".to_owned(),
            "SADD k a b 3".to_owned(),
            format!("SADD k{many}"),
            format!("SADD k a {long}"),
            "HSET k f v n 10".to_owned(),
            format!("HSET k{many} f {long}"),
            "ZADD k 1 a 2.5 b -inf c".to_owned(),
            "XADD k 5-1 f v g w; XADD k 5-3 f x g 7; XADD k 6-0 other v; XADD k 7-0 f a g b; \
             XDEL k 5-3; XGROUP CREATE k one 0; XGROUP CREATE k two $ ENTRIESREAD 4; \
             XREADGROUP GROUP one me COUNT 2 STREAMS k >; XGROUP CREATECONSUMER k one you"
                .to_owned(),
            "XGROUP CREATE k g 0 MKSTREAM".to_owned(),
            format!("ZADD k 1 {long} 2.5 b inf c"),
        ];
        let written = written.iter().map(|commands| {
            let payload = payload_of(&made_by(commands));
            unseal(&payload).expect("sealed").to_vec()
        });
        let former: [&[u8]; 12] = [
            b"\x01\x03\x01a\x01b\xc0\x05",
            b"\x02\x03\x01x\xc0\x05\xc1\x00\x01",
            b"\x03\x04\x01a\x031.5\x01b\xff\x01c\xfe\x01d\x02-3",
            b"\x04\x02\x01f\x01v\x01g\xc2\x00\x00\x01\x00",
            b"\x09\x14\x02\x01f\x01\x00v\x01g\x06\x03longer\x00\x00\x00\xff",
            b"\x0a\x2c\x2c\x00\x00\x00\x21\x00\x00\x00\x07\x00\x00\x01a\x03\xf1\x02\xfe\x80\x03\
              \xc0\x80\x00\x04\xf0\x00\x80\x00\x05\xd0\x00\x00\x80\x00\x06\xe0\x00\x00\x00\x80\
              \x00\x00\x00\x00\xff",
            b"\x0b\x20\x08\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x05\x00\
              \x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x0c\x20\x20\x00\x00\x00\x1a\x00\x00\x00\x06\x00\x00\x01a\x03\xf2\x02\x01b\x03\x032\
              .5\x05\x01c\x03\x03inf\xff",
            b"\x0d\x17\x17\x00\x00\x00\x13\x00\x00\x00\x04\x00\x00\x01f\x03\x01v\x03\x01n\x03\xfe\
              M\xff",
            b"\x0e\x02\x10\x10\x00\x00\x00\x0d\x00\x00\x00\x02\x00\x00\x01a\x03\xf2\xff\x0e\x0e\
              \x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x01b\xff",
            b"\x12\x02\x02\x0c\x0c\x00\x00\x00\x02\x00\x81a\x02\x07\x01\xff\x01\x05plain",
            b"\x0f\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x3b\
              \x3b\x00\x00\x00\x16\x00\x02\x01\x01\x01\x01\x01\x81f\x02\x00\x01\x02\x01\x00\x01\
              \x00\x01\x81v\x02\x04\x01\x03\x01\x00\x01\x01\x01\x84gone\x05\x04\x01\x00\x01\x01\
              \x01\x00\x01\x01\x01\x81g\x02\x81w\x02\x06\x01\xff\x02\x06\x01\x01\x02g0\x05\x01\
              \x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x00h\xe5\xcf\
              \x8b\x01\x00\x00\x01\x01\x01c\x00h\xe5\xcf\x8b\x01\x00\x00\x01\x00\x00\x00\x00\x00\
              \x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01",
        ];
        written.chain(former.map(<[u8]>::to_vec)).collect()
    }

    /// A change to some bytes; positions beyond the end wrap around.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Set(usize, u8),
        Flip(usize, u32),
        Cut(usize),
        Insert(usize, u8),
        Repeat(usize, usize),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let at = || 0..400_usize;
        let telling =
            prop::sample::select(&[0, 1, 2, 0x7f, 0x80, 0x81, 0xc3, 0xf0, 0xfe, 0xff][..]);
        let change = prop_oneof![
            4 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
            4 => (at(), telling).prop_map(|(at, byte)| Change::Set(at, byte)),
            4 => (at(), 0..8_u32).prop_map(|(at, bit)| Change::Flip(at, bit)),
            1 => at().prop_map(Change::Cut),
            1 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Insert(at, byte)),
            1 => (at(), 1..20_usize).prop_map(|(at, count)| Change::Repeat(at, count)),
        ];
        prop::collection::vec(change, 0..5)
    }

    fn apply(change: &Change, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        match *change {
            _ if bytes.is_empty() => {}
            Change::Set(at, byte) => bytes[at % length] = byte,
            Change::Flip(at, bit) => bytes[at % length] ^= 1 << bit,
            Change::Cut(at) => bytes.truncate(at % length),
            Change::Insert(at, byte) => bytes.insert(at % length, byte),
            Change::Repeat(at, count) => {
                let at = at % length;
                let again = bytes[at..(at + count).min(length)].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }

    #[test]
    fn every_sample_is_read() {
        for sample in samples() {
            let value = read(&sample, forms());
            assert!(value.is_ok(), "{}", sample.escape_ascii());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            cases: 20_000,
            ..ProptestConfig::default()
        })]

        #[test]
        fn malformed_bodies_give_an_error_or_a_value_that_can_be_written(
            sample in prop::sample::select(samples()),
            changes in changes(),
        ) {
            let mut body = sample;
            changes.iter().for_each(|change| apply(change, &mut body));
            if let Ok(value) = read(&body, forms()) {
                prop_assert!(matches!(value, Value::String(_)) || !contents(&value).is_empty());
                let payload = payload_of(&value);
                let again = read(unseal(&payload).expect("sealed"), forms());
                prop_assert_eq!(again.map(|again| contents(&again)), Ok(contents(&value)));
            }
        }

        #[test]
        fn payload_with_a_flipped_bit_is_refused(
            sample in prop::sample::select(samples()),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let mut payload = seal(sample);
            let at = at.index(payload.len());
            payload[at] ^= 1 << bit;
            prop_assert_eq!(unseal(&payload), None);
        }
    }
}
