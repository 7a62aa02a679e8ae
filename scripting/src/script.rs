//! A script's digest and the declarations of its first line. Independent of Lua.

use std::fmt;
use std::hash::{Hash, Hasher};

use indexmap::Equivalent;
use lockwheel_resp::Reply;
use sha1::{Digest, Sha1};

/// The SHA-1 digest of a script's text: forty lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sha(pub [u8; Sha::DIGITS]);

impl Hash for Sha {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Digits(&self.0).hash(state);
    }
}

/// Forty bytes that may be a digest, in upper or lower case.
pub(crate) struct Digits<'a>(&'a [u8; Sha::DIGITS]);

impl<'a> Digits<'a> {
    pub(crate) fn read(text: &'a [u8]) -> Option<Digits<'a>> {
        text.try_into().ok().map(Digits)
    }
}

/// Hashes a part of the digits, which is as unique as all of them.
impl Hash for Digits<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // This bit makes a letter lower-case; digits have it already.
        const SMALL: u64 = 0x2020_2020_2020_2020;
        let [digits, ..] = self.0.as_chunks::<24>().0 else { return };
        let [first, second, third] = digits.as_chunks().0 else { return };
        let [first, second, third] =
            [first, second, third].map(|word| u64::from_le_bytes(*word) | SMALL);
        // Only half of the bits of each digit vary.
        state.write_u64(first ^ second << 4 ^ third.rotate_left(32));
    }
}

impl Equivalent<Sha> for Digits<'_> {
    fn equivalent(&self, sha: &Sha) -> bool {
        *self.0 == sha.0 || self.0.eq_ignore_ascii_case(&sha.0)
    }
}

/// A hasher for [`Sha`]s, which are hashes themselves. An attacker would have to search texts by
/// their digests for two that collide in a table, and one slow script has the same effect.
#[derive(Default)]
pub(crate) struct ShaHasher(u64);

impl Hasher for ShaHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, word: u64) {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mixed = (self.0 ^ word).wrapping_mul(ODD);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl Sha {
    /// The number of digits.
    pub const DIGITS: usize = 40;

    /// The digest of this text.
    pub fn of(body: &[u8]) -> Sha {
        let mut digester = Digester::default();
        digester.add(body);
        digester.end()
    }

    /// Reads a digest in upper or lower case. Anything but forty bytes is no digest.
    pub fn parse(text: &[u8]) -> Option<Sha> {
        let mut hex = <[u8; Sha::DIGITS]>::try_from(text).ok()?;
        hex.make_ascii_lowercase();
        Some(Sha(hex))
    }

    /// The forty digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The forty digits as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Computes a digest in parts.
#[derive(Default)]
pub(crate) struct Digester(Sha1);

impl Digester {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    pub(crate) fn end(self) -> Sha {
        let mut hex = [0; Sha::DIGITS];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0.finalize()) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        Sha(hex)
    }
}

impl fmt::Display for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Sha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha({self})")
    }
}

/// The declarations of a `#!lua flags=...` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Script {
    bits: u8,
}

impl Script {
    /// `no-writes`: the script never writes, so it may run where writes are refused.
    #[inline]
    pub fn no_writes(&self) -> bool {
        self.has("no-writes")
    }

    /// `allow-oom`: the script may run when memory is short. So may a script that never writes.
    #[inline]
    pub fn allow_oom(&self) -> bool {
        self.has("allow-oom") || self.no_writes()
    }

    /// `allow-stale`: the script may run on a replica that has lost its master.
    pub fn allow_stale(&self) -> bool {
        self.has("allow-stale")
    }

    /// `no-cluster`: the script may not run in a cluster.
    pub fn no_cluster(&self) -> bool {
        self.has("no-cluster")
    }

    /// `allow-cross-slot-keys`: the script may access keys of several slots.
    #[inline]
    pub fn allow_cross_slot_keys(&self) -> bool {
        self.has("allow-cross-slot-keys")
    }

    /// Whether there was a `#!` line. A script without one runs in compatibility mode.
    #[inline]
    pub fn has_shebang(&self) -> bool {
        self.bits & SHEBANG != 0
    }

    /// The flags that are set, in Redis's order.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let script = *self;
        FLAGS.into_iter().filter(move |flag| script.has(flag))
    }

    /// The declarations of a function without flags. It is never in compatibility mode.
    pub(crate) fn of_function() -> Script {
        Script { bits: SHEBANG }
    }

    /// Adds a flag, in upper or lower case. `None` if there is no flag of that name.
    pub(crate) fn with_flag(self, flag: &[u8]) -> Option<Script> {
        let bit = FLAGS.iter().position(|name| name.as_bytes().eq_ignore_ascii_case(flag))?;
        Some(Script { bits: self.bits | 1 << bit })
    }

    #[inline]
    fn has(&self, flag: &str) -> bool {
        FLAGS.iter().position(|name| *name == flag).is_some_and(|bit| self.bits & (1 << bit) != 0)
    }
}

/// Splits a body into its declarations and the Lua text. The end of the first line stays with the
/// text, so that line numbers are those of the body.
pub(crate) fn parse_shebang(body: &[u8]) -> Result<(Script, &[u8]), Reply> {
    if !body.starts_with(b"#!") {
        return Ok((Script::default(), body));
    }
    let Some(end) = body.iter().position(|byte| *byte == b'\n') else {
        return Err(Reply::error("ERR Invalid script shebang"));
    };
    let (line, code) = body.split_at(end);
    let Some(words) = split_words(line) else {
        return Err(Reply::error("ERR Invalid engine in script shebang"));
    };
    let mut words = words.iter();
    let engine = words.next().map_or(&b""[..], Vec::as_slice);
    if engine != b"#!lua" {
        return Err(refusal("ERR Unexpected engine in script shebang: ", engine));
    }
    let mut script = Script { bits: SHEBANG };
    for word in words {
        let Some(flags) = word.strip_prefix(b"flags=") else {
            return Err(refusal("ERR Unknown lua shebang option: ", word));
        };
        if flags.is_empty() {
            continue;
        }
        for flag in flags.split(|byte| *byte == b',') {
            match FLAGS.iter().position(|name| name.as_bytes() == flag) {
                Some(bit) => script.bits |= 1 << bit,
                None => return Err(refusal("ERR Unexpected flag in script shebang: ", flag)),
            }
        }
    }
    Ok((script, code))
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
const SHEBANG: u8 = 0x80;

fn refusal(text: &str, what: &[u8]) -> Reply {
    let line = [text.as_bytes(), what].concat();
    Reply::Error(line.into())
}

/// Splits a line at blanks; words may be in single or double quotes as on Redis's command line.
/// `None` if a quote is not closed or is not followed by a blank.
pub(crate) fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        if rest.peek().is_none() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
            if byte != b'"' && byte != b'\'' {
                word.push(byte);
                continue;
            }
            loop {
                match rest.next()? {
                    end if end == byte => break,
                    b'\\' if byte == b'"' => word.push(unescape(rest.next()?)),
                    b'\\' if rest.next_if_eq(&b'\'').is_some() => word.push(b'\''),
                    inner => word.push(inner),
                }
            }
            if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                return None;
            }
        }
        words.push(word);
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha_is_parsed_in_any_case() {
        let sha = Sha::of(b"return 1");
        assert_eq!(sha.as_str(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_eq!(Sha::parse(b"E0E1F9FABFC9D4800C877A703B823AC0578FF8DB"), Some(sha));
        assert_eq!(Sha::parse(b"E0E1"), None);
    }

    #[test]
    fn shebang_declares_flags() {
        let bits = |body: &str| match parse_shebang(body.as_bytes()) {
            Ok((script, code)) => format!("{:#x} {}", script.bits, code.escape_ascii()),
            Err(Reply::Error(line)) => String::from_utf8_lossy(&line).into_owned(),
            Err(other) => format!("{other:?}"),
        };
        let cases = [
            ("return 1", "0x0 return 1"),
            ("#!lua\nreturn 1", "0x80 \\nreturn 1"),
            ("#!lua flags=no-writes\nx", "0x81 \\nx"),
            (
                "#!lua flags=no-writes,allow-oom,allow-stale,no-cluster,allow-cross-slot-keys\n",
                "0x9f \\n",
            ),
            ("#!lua flags='no-writes' flags=\"allow-oom\"  \nx", "0x83 \\nx"),
            ("#!lua\tflags=\r\nx", "0x80 \\nx"),
            ("#!lua flags=nope\n", "ERR Unexpected flag in script shebang: nope"),
            ("#!lua flags=no-writes,\n", "ERR Unexpected flag in script shebang: "),
            ("#!lua name=abc\n", "ERR Unknown lua shebang option: name=abc"),
            ("#!lua foo\n", "ERR Unknown lua shebang option: foo"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#! lua\n", "ERR Unexpected engine in script shebang: #!"),
            ("#!lua flags='no\n", "ERR Invalid engine in script shebang"),
            ("#!lua", "ERR Invalid script shebang"),
        ];
        for (body, expected) in cases {
            assert_eq!(bits(body), expected, "{body:?}");
        }
    }
}
