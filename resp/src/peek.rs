//! Looks ahead at the requests in a buffer without removing them, so that the engine can prefetch
//! their keys. The result is a guess that ends at the first unusual request; only
//! [`Parser`](crate::Parser) decides what a request is and whether it is allowed.

use crate::parse::{LINE_END_BYTES, short_length};

/// The first arguments of a request; missing ones are empty.
pub type Head<'a> = [&'a [u8]; HEAD_ARGUMENTS];

/// The number of arguments that are enough to find the first key, which follows the number of keys
/// of a script.
const HEAD_ARGUMENTS: usize = 4;

/// Most arguments of a request in the look-ahead, which ends at a longer one.
const ARGUMENTS_MAX: usize = 256;

/// The requests at the beginning of `buffer`, up to the first incomplete or unusual one.
pub fn peek(buffer: &[u8]) -> impl Iterator<Item = Head<'_>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let (head, after) = request(rest)?;
        rest = after;
        Some(head)
    })
}

/// The request at the beginning of `bytes`, and the bytes after it.
fn request(bytes: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let (count, line) = short_length(b'*', bytes)?;
    let mut rest = bytes.get(line..)?;
    let mut head = Head::default();
    if count > ARGUMENTS_MAX {
        return None;
    }
    for at in 0..count {
        let (length, line) = short_length(b'$', rest)?;
        let argument = rest.get(line..line + length)?;
        rest = rest.get(line + length + LINE_END_BYTES..)?;
        if let Some(place) = head.get_mut(at) {
            *place = argument;
        }
    }
    Some((head, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n";
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    const SIX: &[u8] = b"*6\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n";

    fn seen(buffer: &[u8]) -> Vec<Head<'_>> {
        peek(buffer).collect()
    }

    #[test]
    fn complete_requests_are_returned_in_order() {
        let heads: [Head<'_>; 3] =
            [[b"SET", b"k", b"", b""], [b"PING", b"", b"", b""], [b"a", b"b", b"c", b"d"]];
        let buffer = [SET, PING, SIX].concat();
        assert_eq!(seen(&buffer), heads);
        for end in 0..buffer.len() {
            let whole = [SET.len(), SET.len() + PING.len()].iter().filter(|&&it| it <= end).count();
            assert_eq!(seen(&buffer[..end]), heads[..whole], "the first {end} bytes");
        }
    }

    #[test]
    fn unusual_request_ends_look_ahead() {
        for unusual in ["PING\r\n", "*x\r\n", "*2\r\n$1\r\na\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n"]
        {
            assert_eq!(seen(&[PING, unusual.as_bytes(), PING].concat()).len(), 1, "{unusual:?}");
        }
        let many = format!("*{0}\r\n{1}", ARGUMENTS_MAX + 1, "$0\r\n\r\n".repeat(300));
        assert_eq!(seen(many.as_bytes()), [] as [Head<'_>; 0]);
    }
}
