//! Memory for short bulk strings in replies, as pieces of a block. A command replies with a copy of
//! a value, and an allocation for each copy would cost more than finding the key.

use bytes::BytesMut;
use lockwheel_resp::Reply;

/// Bytes of a block. A block lives as long as any piece of it: for a command or a script.
const BLOCK_BYTES: usize = 4096;
/// Longer strings get an allocation of their own.
const SHORT_BYTES_MAX: usize = 256;

/// See the module's documentation.
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

#[cfg(test)]
mod tests {
    use super::*;

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
