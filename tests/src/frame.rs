//! Replies as they stand on the wire: where one ends, and a tree for the few comparisons that are
//! not byte for byte. Any bytes a server sent come back from [`Frame::bytes`] unchanged.

use std::fmt;

/// One reply, taken apart. A missing value (`$-1`, `*-1`) has the text `-1` and no items.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// The type byte: `+ - : $ * _ , # ( ! = % ~ >`.
    pub kind: u8,
    /// The payload of a bulk type, the rest of the line for the others.
    pub text: Vec<u8>,
    /// What an aggregate holds; keys and values of a map alternate.
    pub items: Vec<Frame>,
}

/// The length of the first complete reply in `bytes`, if it is all there.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let mut position = 0;
    let mut pending = 1;
    while pending > 0 {
        let line = line_at(bytes, position)?;
        position += line.len() + 2;
        pending -= 1;
        let count = declared(line);
        if is_bulk(line[0]) {
            position += count.map_or(0, |count| count + 2);
        } else {
            pending += children(line[0], count);
        }
    }
    (position <= bytes.len()).then_some(position)
}

impl Frame {
    /// Takes apart one complete reply.
    pub fn parse(bytes: &[u8]) -> Frame {
        assert_eq!(length(bytes), Some(bytes.len()), "not one whole reply: {}", show(bytes));
        Frame::parse_at(bytes, &mut 0)
    }

    fn parse_at(bytes: &[u8], position: &mut usize) -> Frame {
        let line = line_at(bytes, *position).expect("the length was checked");
        *position += line.len() + 2;
        let (kind, count) = (line[0], declared(line));
        match count {
            Some(count) if is_bulk(kind) => {
                let text = bytes[*position..*position + count].to_vec();
                *position += count + 2;
                Frame { kind, text, items: Vec::new() }
            }
            Some(_) if is_aggregate(kind) => {
                let items = (0..children(kind, count)).map(|_| Frame::parse_at(bytes, position));
                Frame { kind, text: Vec::new(), items: items.collect() }
            }
            _ => Frame { kind, text: line[1..].to_vec(), items: Vec::new() },
        }
    }

    /// The reply as it was sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![self.kind];
        let missing = self.text == b"-1";
        if is_aggregate(self.kind) && !missing {
            let count = if self.kind == b'%' { self.items.len() / 2 } else { self.items.len() };
            out.extend_from_slice(format!("{count}\r\n").as_bytes());
            self.items.iter().for_each(|item| out.extend(item.bytes()));
            return out;
        }
        if is_bulk(self.kind) && !missing {
            out.extend_from_slice(format!("{}\r\n", self.text.len()).as_bytes());
        }
        out.extend_from_slice(&self.text);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Calls `change` on every reply of the tree, the inner ones first.
    pub fn walk(&mut self, change: &mut impl FnMut(&mut Frame)) {
        self.items.iter_mut().for_each(|item| item.walk(change));
        change(self);
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show(&self.bytes()))
    }
}

/// Bytes as a person can read them in a failure message.
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn line_at(bytes: &[u8], position: usize) -> Option<&[u8]> {
    let rest = bytes.get(position..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert!(end > 0, "an empty line where a reply was due: {}", show(bytes));
    Some(&rest[..end])
}

/// The length or count a header declares; `None` for a missing value and for plain lines.
fn declared(line: &[u8]) -> Option<usize> {
    std::str::from_utf8(&line[1..]).ok()?.parse().ok()
}

fn is_bulk(kind: u8) -> bool {
    matches!(kind, b'$' | b'=' | b'!')
}

fn is_aggregate(kind: u8) -> bool {
    matches!(kind, b'*' | b'%' | b'~' | b'>')
}

fn children(kind: u8, count: Option<usize>) -> usize {
    match kind {
        b'%' => 2 * count.unwrap_or(0),
        b'*' | b'~' | b'>' => count.unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, length};

    const REPLIES: [&[u8]; 9] = [
        b"+OK\r\n",
        b":-12\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b"$4\r\n\r\n\r\n\r\n",
        b"*3\r\n$1\r\na\r\n*0\r\n:1\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n#t\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n=7\r\ntxt:abc\r\n",
    ];

    #[test]
    fn a_reply_ends_where_it_ends() {
        for reply in REPLIES {
            for cut in 0..reply.len() {
                assert_eq!(length(&reply[..cut]), None, "{}", super::show(&reply[..cut]));
            }
            assert_eq!(length(&[reply, b"+NEXT\r\n"].concat()), Some(reply.len()));
        }
    }

    #[test]
    fn taking_apart_loses_nothing() {
        for reply in REPLIES {
            assert_eq!(Frame::parse(reply).bytes(), reply);
        }
    }
}
