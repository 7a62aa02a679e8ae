//! Memory for short bulk strings that are answered: pieces of one block after another. A command
//! answers with a copy of what a key holds, and an allocation for each would cost more than to find
//! it. It knows nothing of what the bytes say.

use bytes::BytesMut;
use lockwheel_resp::Reply;

/// Bytes of a block. It is kept as long as one of its pieces is: for a command, or a script.
const BLOCK_BYTES: usize = 4096;
/// Longer strings have an allocation of their own.
const SHORT_BYTES_MAX: usize = 256;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Replies {
    /// What is left of the block.
    block: BytesMut,
}

impl Replies {
    /// A bulk string copied from `bytes`.
    pub fn bulk(&mut self, bytes: &[u8]) -> Reply {
        if bytes.len() > SHORT_BYTES_MAX {
            return Reply::bulk(bytes);
        }
        if self.block.capacity() < bytes.len() {
            // The same block again, if nobody has a piece of it any more.
            self.block.reserve(BLOCK_BYTES);
        }
        self.block.extend_from_slice(bytes);
        Reply::Bulk(self.block.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_keeps_its_bytes() {
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
