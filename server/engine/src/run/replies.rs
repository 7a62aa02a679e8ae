//! Memory for short bulk strings in replies, as pieces of a block. A command replies with a copy of
//! a value, and an allocation for each copy would cost more than finding the key.

use bytes::{Bytes, BytesMut};
use lockwheel_resp::{Protocol, Reply, format_double};

/// Bytes of a block. A block lives as long as any piece of it: for a command or a script.
const BLOCK_BYTES: usize = 4096;
/// Length of the longest string without an allocation of its own.
const SHORT_BYTES_MAX: usize = 256;

/// A pool of memory for short bulk strings in replies.
#[derive(Debug, Default)]
pub struct Replies {
    /// The rest of the block.
    block: BytesMut,
}

impl Replies {
    /// A bulk string copied from `bytes`.
    pub fn bulk(&mut self, bytes: &[u8]) -> Reply {
        if bytes.len() > SHORT_BYTES_MAX {
            return Reply::bulk(bytes);
        }
        if self.block.capacity() < bytes.len() {
            // Reuses the block if no piece of it is left.
            self.block.reserve(BLOCK_BYTES);
        }
        self.block.extend_from_slice(bytes);
        Reply::Bulk(self.block.split().freeze())
    }
}

/// The reply as a client of this protocol reads it, without its encoding. Short strings are copied,
/// since a piece would keep its block in memory.
pub(crate) fn received(reply: Reply, protocol: Protocol) -> Reply {
    let each = |items: Vec<Reply>| items.into_iter().map(|it| received(it, protocol)).collect();
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => Reply::Simple(one_line(text)),
        Reply::Error(text) => Reply::Error(one_line(text)),
        Reply::Bulk(bytes) if bytes.len() <= SHORT_BYTES_MAX => Reply::bulk(bytes),
        Reply::NullArray if resp3 => Reply::Null,
        Reply::Array(items) => Reply::Array(each(items)),
        Reply::Set(items) if resp3 => Reply::Set(each(items)),
        Reply::Push(items) if resp3 => Reply::Push(each(items)),
        Reply::Set(items) | Reply::Push(items) => Reply::Array(each(items)),
        Reply::Several(items) => Reply::Several(each(items)),
        Reply::Map(pairs) if resp3 => {
            let pair = |(key, value)| (received(key, protocol), received(value, protocol));
            Reply::Map(pairs.into_iter().map(pair).collect())
        }
        Reply::Map(pairs) => {
            Reply::Array(each(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()))
        }
        Reply::Double(value) if !resp3 => Reply::bulk(format_double(value).as_bytes()),
        Reply::Boolean(value) if !resp3 => Reply::from(value),
        Reply::BigNumber(text) | Reply::Verbatim { text, .. } if !resp3 => Reply::Bulk(text),
        reply => reply,
    }
}

/// Line ends become spaces, as in the encoding of a line.
fn one_line(text: Bytes) -> Bytes {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !text.iter().any(is_end) {
        return text;
    }
    text.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use lockwheel_resp::{decode, encode};

    use super::*;

    #[test]
    fn received_reply_equals_decoded_reply() {
        let items = || {
            vec![
                Reply::OK,
                Reply::error("ERR a\r\nb"),
                Reply::Integer(-1),
                Reply::bulk("text"),
                Reply::bulk([b'x'; 300]),
                Reply::Null,
                Reply::NullArray,
                Reply::Double(0.1),
                Reply::Double(f64::NEG_INFINITY),
                Reply::Boolean(true),
                Reply::BigNumber("123".into()),
                Reply::Verbatim { format: *b"txt", text: "a\nb".into() },
            ]
        };
        let pairs = || vec![(Reply::bulk("k"), Reply::Set(items())), (Reply::Null, Reply::OK)];
        let nested = [Reply::Map(pairs()), Reply::Push(items()), Reply::Array(vec![])];
        for reply in items().into_iter().chain(nested) {
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let mut out = BytesMut::new();
                encode(&reply, protocol, &mut out);
                let (decoded, _) = decode(&out).expect("valid").expect("complete");
                assert_eq!(received(reply.clone(), protocol), decoded, "{protocol:?}");
            }
        }
    }

    #[test]
    fn strings_keep_their_bytes_across_blocks() {
        let mut replies = Replies::default();
        let mut kept = Vec::new();
        for step in 0..2_000_usize {
            let bytes = vec![step as u8; step * 7 % 300];
            let reply = replies.bulk(&bytes);
            assert_eq!(reply, Reply::bulk(&bytes));
            if step % 3 == 0 {
                kept.push((reply, bytes));
            }
        }
        assert!(kept.iter().all(|(reply, bytes)| *reply == Reply::bulk(bytes)));
    }
}
