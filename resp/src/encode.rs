//! Encodes replies in RESP2 or RESP3, and requests.

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;

use crate::number::format_double;
use crate::reply::{Protocol, Reply};

/// Appends `reply` to `out`, encoded for a client that uses `protocol`.
#[inline(always)]
pub fn encode(reply: &Reply, protocol: Protocol, out: &mut BytesMut) {
    match reply {
        // The most frequent ones.
        Reply::Integer(value @ 0..=9) => {
            out.extend_from_slice(&[b':', b'0' + *value as u8, b'\r', b'\n']);
        }
        Reply::Null if protocol == Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
        reply => encode_rarer(reply, protocol, out),
    }
}

/// As [`encode`], for any reply.
fn encode_rarer(reply: &Reply, protocol: Protocol, out: &mut BytesMut) {
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Simple(text) => match &**text {
            b"OK" => out.extend_from_slice(b"+OK\r\n"),
            b"PONG" => out.extend_from_slice(b"+PONG\r\n"),
            text => line(b'+', text, out),
        },
        Reply::Error(text) => line(b'-', text, out),
        Reply::Integer(value) => header(b':', *value, out),
        Reply::Bulk(bytes) => bulk(bytes, out),
        Reply::Null | Reply::NullArray if resp3 => out.extend_from_slice(b"_\r\n"),
        Reply::Null => out.extend_from_slice(b"$-1\r\n"),
        Reply::NullArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Array(items) => aggregate(b'*', items, protocol, out),
        Reply::Set(items) => aggregate(if resp3 { b'~' } else { b'*' }, items, protocol, out),
        Reply::Push(items) => aggregate(if resp3 { b'>' } else { b'*' }, items, protocol, out),
        Reply::Map(pairs) => map(pairs, protocol, out),
        Reply::Double(value) if resp3 => line(b',', format_double(*value).as_bytes(), out),
        Reply::Double(value) => bulk(format_double(*value).as_bytes(), out),
        Reply::Boolean(value) if resp3 => {
            out.extend_from_slice(if *value { b"#t\r\n" } else { b"#f\r\n" });
        }
        Reply::Boolean(value) => header(b':', i64::from(*value), out),
        Reply::BigNumber(digits) if resp3 => line(b'(', digits, out),
        Reply::BigNumber(digits) => bulk(digits, out),
        Reply::Verbatim { format, text } if resp3 => verbatim(*format, text, out),
        Reply::Verbatim { text, .. } => bulk(text, out),
        Reply::Several(replies) => {
            for reply in replies {
                encode(reply, protocol, out);
            }
        }
    }
}

/// Appends the header of an array; its items must follow.
pub fn encode_array_header(count: usize, out: &mut BytesMut) {
    length(b'*', count, out);
}

/// Appends a request as clients send it: an array of bulk strings.
pub fn encode_request<A: AsRef<[u8]>>(args: &[A], out: &mut BytesMut) {
    length(b'*', args.len(), out);
    for arg in args {
        bulk(arg.as_ref(), out);
    }
}

fn aggregate(marker: u8, items: &[Reply], protocol: Protocol, out: &mut BytesMut) {
    length(marker, items.len(), out);
    for item in items {
        encode(item, protocol, out);
    }
}

fn map(pairs: &[(Reply, Reply)], protocol: Protocol, out: &mut BytesMut) {
    match protocol {
        Protocol::Resp2 => length(b'*', pairs.len() * 2, out),
        Protocol::Resp3 => length(b'%', pairs.len(), out),
    }
    for (key, value) in pairs {
        encode(key, protocol, out);
        encode(value, protocol, out);
    }
}

/// Appends a push of bulk strings, such as a message to a subscriber.
pub fn encode_push(words: &[&[u8]], protocol: Protocol, out: &mut BytesMut) {
    let space = |word: &&[u8]| HEADER_BYTES_MAX + word.len() + LINE_END.len();
    out.reserve(HEADER_BYTES_MAX + words.iter().map(space).sum::<usize>());
    length(if protocol == Protocol::Resp3 { b'>' } else { b'*' }, words.len(), out);
    for word in words {
        bulk(word, out);
    }
}

fn bulk(bytes: &[u8], out: &mut BytesMut) {
    if bytes.len() < SMALL_BYTES_MAX {
        return small_bulk(bytes, out);
    }
    out.reserve(HEADER_BYTES_MAX + bytes.len() + LINE_END.len());
    length(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(LINE_END);
}

/// A length of at most two digits; assembled on the stack so that `out` grows once.
fn small_bulk(bytes: &[u8], out: &mut BytesMut) {
    let mut small = [0; 1 + 2 + 2 + SMALL_BYTES_MAX + 2];
    let digit = |number: usize| b'0' + number as u8;
    let start = if bytes.len() < 10 {
        small[..4].copy_from_slice(&[b'$', digit(bytes.len()), b'\r', b'\n']);
        4
    } else {
        let (tens, ones) = (digit(bytes.len() / 10), digit(bytes.len() % 10));
        small[..5].copy_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
        5
    };
    let end = start + bytes.len();
    small[start..end].copy_from_slice(bytes);
    small[end..end + LINE_END.len()].copy_from_slice(LINE_END);
    out.extend_from_slice(&small[..end + LINE_END.len()]);
}

fn verbatim(format: [u8; 3], text: &Bytes, out: &mut BytesMut) {
    length(b'=', format.len() + 1 + text.len(), out);
    out.extend_from_slice(&format);
    out.put_u8(b':');
    out.extend_from_slice(text);
    out.extend_from_slice(LINE_END);
}

/// A marker, text and the line end. Line ends within the text become spaces, since the rest would
/// be read as another reply.
fn line(marker: u8, text: &[u8], out: &mut BytesMut) {
    if text.len() <= SHORT_LINE_BYTES_MAX && !text.iter().any(|byte| matches!(byte, b'\r' | b'\n'))
    {
        let mut short = [marker; 1 + SHORT_LINE_BYTES_MAX + 2];
        let end = 1 + text.len();
        short[1..end].copy_from_slice(text);
        short[end..end + LINE_END.len()].copy_from_slice(LINE_END);
        return out.extend_from_slice(&short[..end + LINE_END.len()]);
    }
    out.reserve(1 + text.len() + LINE_END.len());
    out.put_u8(marker);
    let mut rest = text;
    while let Some(at) = memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(&rest[..at]);
        out.put_u8(b' ');
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(LINE_END);
}

fn length(marker: u8, count: usize, out: &mut BytesMut) {
    // No collection in memory is longer than the maximum of an i64.
    header(marker, count as i64, out);
}

/// A marker and a number, assembled on the stack so that `out` grows once.
fn header(marker: u8, value: i64, out: &mut BytesMut) {
    if (0..10).contains(&value) {
        return out.extend_from_slice(&[marker, b'0' + value as u8, b'\r', b'\n']);
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value).as_bytes();
    let mut bytes = [0; HEADER_BYTES_MAX];
    let end = 1 + digits.len();
    bytes[0] = marker;
    bytes[1..end].copy_from_slice(digits);
    bytes[end..end + LINE_END.len()].copy_from_slice(LINE_END);
    out.extend_from_slice(&bytes[..end + LINE_END.len()]);
}

const LINE_END: &[u8] = b"\r\n";
/// Length of the longest line that is written at once, such as `OK` and `PONG`; errors are longer.
const SHORT_LINE_BYTES_MAX: usize = 8;
/// Length from which a bulk string is appended in pieces; shorter ones are copied twice instead.
const SMALL_BYTES_MAX: usize = 64;
/// A marker, `-9223372036854775808` and the line end.
const HEADER_BYTES_MAX: usize = 1 + 20 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reply: &Reply, resp2: &str, resp3: &str) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = BytesMut::new();
            encode(reply, protocol, &mut out);
            assert_eq!(out.escape_ascii().to_string().replace("\\r\\n", "|"), expected);
        }
    }

    #[track_caller]
    fn check_both(reply: &Reply, expected: &str) {
        check(reply, expected, expected);
    }

    #[test]
    fn replies_common_to_both_protocols_are_encoded_alike() {
        check_both(&Reply::OK, "+OK|");
        check_both(&Reply::error("ERR no"), "-ERR no|");
        check_both(&Reply::error("ERR a\r\nb\n"), "-ERR a  b |");
        check_both(&Reply::Simple("\r+OK".into()), "+ +OK|");
        check_both(&Reply::Integer(0), ":0|");
        check_both(&Reply::Integer(i64::MIN), ":-9223372036854775808|");
        check_both(&Reply::bulk(b"a\0b"), "$3|a\\x00b|");
        check_both(&Reply::bulk(""), "$0||");
        for length in [9, 10, 63, 64, 99, 100] {
            let text = "x".repeat(length);
            check_both(&Reply::bulk(&text), &format!("${length}|{text}|"));
            check_both(&Reply::Simple(text.clone().into()), &format!("+{text}|"));
        }
        check_both(&Reply::Integer(9), ":9|");
        check_both(&Reply::Integer(10), ":10|");
        check_both(&Reply::Integer(-1), ":-1|");
        check_both(&Reply::Array(vec![]), "*0|");
        check_both(
            &Reply::Array(vec![Reply::Integer(7), Reply::Array(vec![Reply::OK])]),
            "*2|:7|*1|+OK|",
        );
        check_both(&Reply::Several(vec![Reply::OK, Reply::Integer(1)]), "+OK|:1|");
        check_both(&Reply::NOTHING, "");
    }

    #[test]
    fn resp3_types_are_encoded_differently_in_resp2() {
        let one = || vec![Reply::Integer(1)];
        check(&Reply::Null, "$-1|", "_|");
        check(&Reply::NullArray, "*-1|", "_|");
        check(&Reply::Map(vec![(Reply::bulk("k"), Reply::Null)]), "*2|$1|k|$-1|", "%1|$1|k|_|");
        check(&Reply::Set(one()), "*1|:1|", "~1|:1|");
        check(&Reply::Push(one()), "*1|:1|", ">1|:1|");
        check(&Reply::Boolean(true), ":1|", "#t|");
        check(&Reply::Boolean(false), ":0|", "#f|");
        check(&Reply::Double(1.5), "$3|1.5|", ",1.5|");
        check(&Reply::Double(f64::NEG_INFINITY), "$4|-inf|", ",-inf|");
        check(&Reply::BigNumber("123".into()), "$3|123|", "(123|");
        let verbatim = Reply::Verbatim { format: *b"txt", text: "a\nb".into() };
        check(&verbatim, "$3|a\\nb|", "=7|txt:a\\nb|");
    }

    #[test]
    fn request_is_an_array_of_bulk_strings() {
        let mut out = BytesMut::new();
        encode_request(&["GET", ""], &mut out);
        assert_eq!(out, "*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    }

    #[test]
    fn push_is_an_array_in_resp2_and_a_push_in_resp3() {
        let long = "x".repeat(200);
        for (protocol, marker) in [(Protocol::Resp2, '*'), (Protocol::Resp3, '>')] {
            let mut out = BytesMut::new();
            encode_push(&[b"message", b"", long.as_bytes()], protocol, &mut out);
            let expected = format!("{marker}3\r\n$7\r\nmessage\r\n$0\r\n\r\n$200\r\n{long}\r\n");
            assert_eq!(out, expected.as_bytes());
        }
    }
}
