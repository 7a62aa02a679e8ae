//! Parses replies into trees that can be compared. It does not use the server's own parser, so that
//! an error there cannot hide itself. [`Frame::bytes`] returns the received bytes unchanged.

use std::fmt;

/// The deepest nesting of replies: far more than any server sends.
const DEPTH_MAX: usize = 512;

/// One parsed reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The type byte: `+ - : $ * _ , # ( ! = % ~ >`.
    pub kind: u8,
    /// The payload of a bulk type, the rest of the line for other types.
    pub text: Vec<u8>,
    /// The elements of an aggregate; keys and values of a map alternate.
    pub items: Vec<Frame>,
    /// Whether it is a RESP2 null: `$-1` or `*-1`.
    pub missing: bool,
}

/// The error for received bytes that are not a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a reply: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Frame {
    /// Parses the first reply in `bytes` and returns its length; `None` if it is not complete.
    pub fn first(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
        let mut position = 0;
        let frame = Frame::read(bytes, &mut position, 0)?;
        Ok(frame.map(|frame| (frame, position)))
    }

    fn read(bytes: &[u8], position: &mut usize, depth: usize) -> Result<Option<Frame>, Malformed> {
        let Some(line) = line_at(bytes, *position)? else { return Ok(None) };
        let wrong = || Malformed(show(line));
        *position += line.len() + 2;
        let (kind, rest) = (line[0], &line[1..]);
        let text = rest.to_vec();
        if !(is_bulk(kind) || is_aggregate(kind)) {
            let known = matches!(kind, b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(');
            return if known { Ok(Some(Frame::plain(kind, text))) } else { Err(wrong()) };
        }
        if rest == b"-1" {
            return Ok(Some(Frame { missing: true, ..Frame::plain(kind, Vec::new()) }));
        }
        let count = std::str::from_utf8(rest).ok().and_then(|digits| digits.parse::<usize>().ok());
        let count = count.ok_or_else(wrong)?;
        if is_bulk(kind) {
            let end = position.checked_add(count).ok_or_else(wrong)?;
            let Some(text) = bytes.get(*position..end) else { return Ok(None) };
            match bytes.get(end..end + 2) {
                None => return Ok(None),
                Some(b"\r\n") => {}
                Some(_) => return Err(wrong()),
            }
            *position = end + 2;
            return Ok(Some(Frame::plain(kind, text.to_vec())));
        }
        if depth == DEPTH_MAX {
            return Err(wrong());
        }
        let count = if kind == b'%' { count.checked_mul(2).ok_or_else(wrong)? } else { count };
        let mut items = Vec::new();
        for _ in 0..count {
            match Frame::read(bytes, position, depth + 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(Frame { items, ..Frame::plain(kind, Vec::new()) }))
    }

    fn plain(kind: u8, text: Vec<u8>) -> Frame {
        Frame { kind, text, items: Vec::new(), missing: false }
    }

    /// Parses bytes that are one complete reply; `None` if they are not.
    pub fn whole(bytes: &[u8]) -> Option<Frame> {
        match Frame::first(bytes) {
            Ok(Some((frame, length))) if length == bytes.len() => Some(frame),
            _ => None,
        }
    }

    /// The bytes of the reply.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.kind];
        if self.missing {
            out.extend_from_slice(b"-1\r\n");
            return out;
        }
        if is_aggregate(self.kind) {
            let count = if self.kind == b'%' { self.items.len() / 2 } else { self.items.len() };
            out.extend_from_slice(format!("{count}\r\n").as_bytes());
            self.items.iter().for_each(|item| out.extend(item.bytes()));
            return out;
        }
        if is_bulk(self.kind) {
            out.extend_from_slice(format!("{}\r\n", self.text.len()).as_bytes());
        }
        out.extend_from_slice(&self.text);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// The reply as text; `None` for nil.
    pub fn as_text(&self) -> Option<String> {
        let is_nil = self.missing || self.kind == b'_';
        // A verbatim string of RESP3 begins with its format.
        let text = match self.kind {
            b'=' => self.text.get(4..).unwrap_or_default(),
            _ => &self.text,
        };
        (!is_nil).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Calls `change` on every node of the tree, inner nodes first.
    pub fn walk(&mut self, change: &mut impl FnMut(&mut Frame)) {
        self.items.iter_mut().for_each(|item| item.walk(change));
        change(self);
    }

    /// The reply in the notation of cases: `+OK`, `:1`, `"bulk"`, `nil`, `[..]`, `{..}`.
    pub fn notation(&self) -> String {
        let text = || self.text.escape_ascii().to_string();
        let list =
            |items: &[Frame]| items.iter().map(Frame::notation).collect::<Vec<_>>().join(", ");
        match self.kind {
            b'$' if self.missing => "nil".to_owned(),
            b'*' if self.missing => "nil-array".to_owned(),
            b'_' => "nil".to_owned(),
            b'$' => quoted(&self.text),
            b'*' => format!("[{}]", list(&self.items)),
            b'~' => format!("set [{}]", list(&self.items)),
            b'>' => format!("push [{}]", list(&self.items)),
            b'%' => {
                let pair = |pair: &[Frame]| {
                    pair.iter().map(Frame::notation).collect::<Vec<_>>().join(": ")
                };
                let pairs: Vec<_> = self.items.chunks(2).map(pair).collect();
                format!("{{{}}}", pairs.join(", "))
            }
            b'=' => format!("verbatim {}", quoted(&self.text)),
            kind => format!("{}{}", char::from(kind), text()),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.bytes()))
    }
}

/// Bytes in readable form, for messages.
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Bytes in double quotes, as cases and `redis-cli` write them.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('"');
    out
}

fn line_at(bytes: &[u8], position: usize) -> Result<Option<&[u8]>, Malformed> {
    let rest = bytes.get(position..).unwrap_or_default();
    match rest.windows(2).position(|pair| pair == b"\r\n") {
        None => Ok(None),
        Some(0) => Err(Malformed("an empty line".to_owned())),
        Some(end) => Ok(Some(&rest[..end])),
    }
}

fn is_bulk(kind: u8) -> bool {
    matches!(kind, b'$' | b'=' | b'!')
}

fn is_aggregate(kind: u8) -> bool {
    matches!(kind, b'*' | b'%' | b'~' | b'>')
}

#[cfg(test)]
mod tests {
    use super::Frame;

    const REPLIES: [&[u8]; 11] = [
        b"+OK\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"$4\r\n\r\n\r\n\r\n",
        b"$0\r\n\r\n",
        b"$2\r\n-1\r\n",
        b"*3\r\n$1\r\na\r\n*0\r\n:1\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n#t\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n=7\r\ntxt:abc\r\n",
    ];

    #[test]
    fn reply_length_is_found() {
        for reply in REPLIES {
            for cut in 0..reply.len() {
                assert_eq!(Frame::first(&reply[..cut]), Ok(None), "{}", super::show(&reply[..cut]));
            }
            let two = [reply, b"+NEXT\r\n"].concat();
            let (_, length) = Frame::first(&two).expect("well-formed").expect("whole");
            assert_eq!(length, reply.len());
        }
    }

    #[test]
    fn parsed_reply_keeps_all_bytes() {
        for reply in REPLIES {
            assert_eq!(Frame::whole(reply).expect("whole").bytes(), reply);
        }
    }

    #[test]
    fn malformed_replies_are_errors() {
        for bytes in
            [&b"?\r\n"[..], b"\r\n", b"$x\r\n", b"$-2\r\n", b"$1\r\nabc\r\n", b"HTTP/1.1\r\n"]
        {
            assert!(Frame::first(bytes).is_err(), "{}", super::show(bytes));
        }
    }

    #[test]
    fn reply_is_shown_in_case_notation() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(Frame::whole(bytes).expect("whole").notation(), expected);
        };
        check(b"*3\r\n$2\r\na\"\r\n$-1\r\n:7\r\n", r#"["a\"", nil, :7]"#);
        check(b"%1\r\n+a\r\n#t\r\n", "{+a: #t}");
        check(b"-ERR no\r\n", "-ERR no");
    }
}
