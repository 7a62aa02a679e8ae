//! The causes of failed cases: the kind of difference between the expected and the received reply.
//! Cases with the same text have the same cause.

use std::io;

use super::pattern::Pattern;
use crate::wire::frame::{Frame, show};
use crate::wire::{is_end, is_silence};

/// The words that are shown of an error that begins with `ERR`, which says little.
const ERROR_WORDS: usize = 4;
/// The type of errors.
const ERROR: &str = "an error";

/// The cause of a reply that does not match the pattern. `sent` is the request.
pub(crate) fn of_reply(pattern: &Pattern, frame: &Frame, protocol: u8, sent: &str) -> String {
    if let Some((expected, came)) = other_type(pattern, frame, protocol) {
        return match type_of(came, protocol) {
            ERROR => format!("the error {} where Redis sends a value", beginning(came)),
            received => format!("{received} where Redis sends {expected}"),
        };
    }
    let received = type_of(frame, protocol);
    if received == ERROR {
        let came = show(&frame.text);
        return match (code(&came), code(error_text(pattern))) {
            (came, "") => format!("the error {came} where Redis sends a value"),
            (came, expected) if came == expected => format!("another text of the error {came}"),
            (came, expected) => format!("the error {came} where Redis sends the error {expected}"),
        };
    }
    let asks_for_time = ["TTL", "EXPIRETIME"].iter().any(|name| sent.contains(name));
    if frame.kind == b':' && asks_for_time {
        return "another time to live".to_owned();
    }
    let name = received.split_once(' ').map_or(received, |(_, name)| name);
    format!("another {name}")
}

/// The cause if the reply is not that of the reference, or is missing.
pub(crate) fn of_replies(
    reference: &Frame,
    came: Option<&Frame>,
    protocol: u8,
    sent: &str,
) -> String {
    match (Pattern::parse(&reference.notation()), came) {
        (_, None) => "no reply".to_owned(),
        (Ok(pattern), Some(came)) => of_reply(&pattern, came, protocol, sent),
        (Err(_), Some(_)) => "another reply".to_owned(),
    }
}

/// The cause if there is no reply.
pub(crate) fn of_error(error: &io::Error) -> String {
    match error {
        error if is_silence(error) => "no reply in time".to_owned(),
        error if is_end(error) => "a closed connection".to_owned(),
        error if error.kind() == io::ErrorKind::InvalidData => {
            "bytes that are not a reply".to_owned()
        }
        error => error.to_string(),
    }
}

/// The type that the pattern describes and the reply of another type; or those of the first
/// elements whose types differ.
fn other_type<'f>(
    pattern: &Pattern,
    frame: &'f Frame,
    protocol: u8,
) -> Option<(&'static str, &'f Frame)> {
    let expected = match pattern {
        Pattern::Any | Pattern::Named(_) => return None,
        Pattern::Has(_) if b"$+=".contains(&frame.kind) && !frame.missing => return None,
        Pattern::Either(patterns) => {
            let each = patterns.iter().map(|pattern| other_type(pattern, frame, protocol));
            return each.min_by_key(Option::is_some).flatten();
        }
        Pattern::Line(kind, _) => name_of(*kind),
        Pattern::ErrorPrefix(_) => ERROR,
        Pattern::Integer(..) => name_of(b':'),
        Pattern::Bulk(_) | Pattern::Has(_) => name_of(b'$'),
        Pattern::NilArray if protocol == 2 => "a null array",
        Pattern::Nil | Pattern::NilArray => "nil",
        Pattern::Double(_) => name_of(if protocol == 2 { b'$' } else { b',' }),
        Pattern::Bool(_) => name_of(if protocol == 2 { b':' } else { b'#' }),
        Pattern::Verbatim(_) => name_of(if protocol == 2 { b'$' } else { b'=' }),
        Pattern::Aggregate { kind, .. } => name_of(if protocol == 2 { b'*' } else { *kind }),
    };
    if type_of(frame, protocol) != expected {
        return Some((expected, frame));
    }
    match pattern {
        Pattern::Aggregate { items, unordered: false, .. } => {
            let mut pairs = items.iter().zip(&frame.items);
            pairs.find_map(|(item, frame)| other_type(item, frame, protocol))
        }
        _ => None,
    }
}

fn type_of(frame: &Frame, protocol: u8) -> &'static str {
    match (frame.kind, protocol) {
        (b'$', 2) if frame.missing => "nil",
        (b'*', 2) if frame.missing => "a null array",
        (b'$' | b'*', _) if frame.missing => "a null of RESP2",
        (b'_', 2) => "a null of RESP3",
        (kind, _) => name_of(kind),
    }
}

/// The type with this byte.
fn name_of(kind: u8) -> &'static str {
    match kind {
        b'+' => "a simple string",
        b'-' | b'!' => ERROR,
        b':' => "an integer",
        b'$' => "a bulk string",
        b'_' => "nil",
        b',' => "a double",
        b'#' => "a boolean",
        b'(' => "a big number",
        b'=' => "a verbatim string",
        b'*' => "an array",
        b'~' => "a set",
        b'%' => "a map",
        b'>' => "a push message",
        _ => "a reply",
    }
}

/// The text of the error that the pattern describes.
fn error_text(pattern: &Pattern) -> &str {
    match pattern {
        Pattern::Line(b'-', text) | Pattern::ErrorPrefix(text) => text,
        Pattern::Either(patterns) => {
            patterns.iter().map(error_text).find(|text| !text.is_empty()).unwrap_or_default()
        }
        _ => "",
    }
}

/// The first word of an error: `WRONGTYPE`.
fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// The first word of an error, or the first words if that is `ERR`.
fn beginning(frame: &Frame) -> String {
    let text = show(&frame.text).replace("\\'", "'");
    if code(&text) != "ERR" {
        return code(&text).to_owned();
    }
    let words: Vec<&str> = text.split(' ').take(ERROR_WORDS).collect();
    let beginning = words.join(" ");
    let is_cut = beginning.len() < text.len();
    let beginning = beginning.trim_end_matches([',', ':']);
    format!("{beginning}{}", if is_cut { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::{of_error, of_replies, of_reply};
    use crate::cases::pattern::Pattern;
    use crate::wire::frame::Frame;

    fn frame(bytes: &[u8]) -> Frame {
        Frame::whole(bytes).expect("one reply")
    }

    #[test]
    fn cause_is_the_kind_of_the_difference() {
        let check = |expected: &str, protocol: u8, came: &[u8], cause: &str| {
            let pattern = Pattern::parse(expected).expect(expected);
            let text = of_reply(&pattern, &frame(came), protocol, "a> GET <k>");
            assert_eq!(text, cause, "{expected} RESP{protocol} {}", came.escape_ascii());
        };
        let simple = "a simple string where Redis sends a bulk string";
        check("\"v\"", 2, b"+v\r\n", simple);
        check("[:1, [\"v\"]]", 2, b"*2\r\n:1\r\n*1\r\n+v\r\n", simple);
        check("has \"v\"", 2, b":1\r\n", "an integer where Redis sends a bulk string");
        check("nil", 2, b"*-1\r\n", "a null array where Redis sends nil");
        check("nil", 3, b"$-1\r\n", "a null of RESP2 where Redis sends nil");
        check("{\"f\": :1}", 3, b"*2\r\n$1\r\nf\r\n:1\r\n", "an array where Redis sends a map");
        check("{\"f\": :1}", 2, b"*2\r\n$1\r\nf\r\n:2\r\n", "another array");
        check("#t", 2, b":0\r\n", "another integer");
        check(":1 | nil", 2, b":2\r\n", "another integer");
        check("+OK", 2, b"-NOSCRIPT a b\r\n", "the error NOSCRIPT where Redis sends a value");
        check(
            "[+OK]",
            2,
            b"*1\r\n-ERR unknown command 'x', with args\r\n",
            "the error ERR unknown command 'x'... where Redis sends a value",
        );
        check("-ERR a", 2, b"+OK\r\n", "a simple string where Redis sends an error");
        check("-ERR a", 2, b"-ERR b\r\n", "another text of the error ERR");
        check(
            "-WRONGTYPE ...",
            2,
            b"-ERR b\r\n",
            "the error ERR where Redis sends the error WRONGTYPE",
        );
    }

    #[test]
    fn times_lost_replies_and_other_servers_have_causes() {
        let time = Pattern::parse(":1..9").expect("a pattern");
        assert_eq!(of_reply(&time, &frame(b":0\r\n"), 2, "a> PTTL <k>"), "another time to live");
        let (one, two) = (frame(b"$1\r\na\r\n"), frame(b"$1\r\nb\r\n"));
        assert_eq!(of_replies(&one, Some(&two), 3, ""), "another bulk string");
        assert_eq!(of_replies(&one, None, 3, ""), "no reply");
        for (kind, cause) in [
            (ErrorKind::TimedOut, "no reply in time"),
            (ErrorKind::UnexpectedEof, "a closed connection"),
            (ErrorKind::InvalidData, "bytes that are not a reply"),
        ] {
            assert_eq!(of_error(&Error::from(kind)), cause);
        }
    }
}
