//! Parses requests: incremental, zero-copy, bounded, resumable at any byte.
//!
//! The parser handles the framing of requests, not their meaning. It stores positions; the bytes
//! stay in the caller's buffer.

use std::fmt;

use memchr::memchr;

use crate::number::parse_integer;
use crate::reply::Reply;
use crate::words;

/// The limits beyond which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request, complete or not (`client-query-buffer-limit`). The maximum is 4 GiB:
    /// positions have 32 bits, so that many empty arguments need little more memory here than bytes
    /// on the wire.
    pub query_buffer_bytes_max: usize,
    /// Bytes of an inline request, and of a line that holds a count: a client that never ends its
    /// line does not use this protocol.
    pub inline_bytes_max: usize,
    /// Arguments of one request. Redis counts them in a C `int`.
    pub args_max: usize,
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Arguments before AUTH: enough for `HELLO 3 AUTH user password SETNAME name`.
    pub unauthenticated_args_max: usize,
    /// Bytes of one argument before AUTH: an unauthenticated client must not make the server hold
    /// megabytes.
    pub unauthenticated_bulk_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            query_buffer_bytes_max: 1024 * 1024 * 1024,
            inline_bytes_max: 64 * 1024,
            args_max: i32::MAX as usize,
            bulk_bytes_max: 512 * 1024 * 1024,
            unauthenticated_args_max: 10,
            unauthenticated_bulk_bytes_max: 16 * 1024,
        }
    }
}

/// A violation of the protocol: the client gets the error, then the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number after `*` is invalid or too large.
    InvalidMultibulkLength,
    /// The number after `$` is invalid, negative or too large.
    InvalidBulkLength,
    /// More arguments than a client may send before AUTH.
    UnauthenticatedMultibulkLength,
    /// A longer argument than a client may send before AUTH.
    UnauthenticatedBulkLength,
    /// An argument began with this byte.
    ExpectedBulk(u8),
    /// An inline request without a line end.
    TooBigInlineRequest,
    /// A `*` line without an end.
    TooBigMultibulkCount,
    /// A `$` line without an end.
    TooBigBulkCount,
    /// An inline request with a quote left open, or with text right after a closing one.
    UnbalancedQuotes,
    /// A request longer than the limit of the query buffer. Redis closes without an error.
    QueryBufferFull,
}

impl fmt::Display for ProtocolError {
    /// The error of Redis, without the dash and the line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        f.write_str(match self {
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedBulk(got) => {
                let shown = if matches!(got, b'\r' | b'\n') { ' ' } else { char::from(*got) };
                return write!(f, "expected '$', got '{shown}'");
            }
            ProtocolError::TooBigInlineRequest => "too big inline request",
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::QueryBufferFull => "query buffer limit exceeded",
        })
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Reply {
    /// The last reply of such a connection. A byte above ASCII is returned unchanged.
    fn from(error: ProtocolError) -> Reply {
        let line = error.to_string();
        match error {
            ProtocolError::ExpectedBulk(0x80..) => {
                Reply::Error(line.chars().map(|shown| shown as u8).collect())
            }
            _ => Reply::error(line),
        }
    }
}

/// Parses the requests of one connection.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    authenticated: bool,
    state: State,
    /// All bytes before this one have been parsed.
    position: usize,
    /// Byte up to which the bytes from `position` on have no line end.
    scanned: usize,
    /// Bytes of the current request received so far.
    received: usize,
    /// The places of the arguments, in the caller's buffer or in `inline`.
    spans: Vec<Span>,
    /// The arguments of an inline request, unquoted, one after another.
    inline: Vec<u8>,
    is_inline: bool,
}

impl Parser {
    /// A parser for a connection that has not authenticated yet.
    pub fn new(mut limits: Limits) -> Parser {
        limits.query_buffer_bytes_max = limits.query_buffer_bytes_max.min(POSITION_MAX);
        Parser {
            limits,
            authenticated: false,
            state: State::Start,
            position: 0,
            scanned: 0,
            received: 0,
            spans: Vec::new(),
            inline: Vec::new(),
            is_inline: false,
        }
    }

    /// Sets whether the full limits apply, from the next length received.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// Sets the longest argument (`proto-max-bulk-len`), from the next length received.
    pub fn set_bulk_bytes_max(&mut self, bytes: usize) {
        self.limits.bulk_bytes_max = bytes;
    }

    /// Parses one request at the beginning of `buffer`, which must begin with the bytes passed
    /// before for the same request.
    ///
    /// `Ok(None)`: more bytes are needed. `Ok(Some(n))`: the request is `buffer[..n]`, which the
    /// caller drops after reading the arguments. A request may be empty (`*0`, `*-1`, an empty
    /// line): skip it. After an error the caller must close the connection.
    pub fn parse(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if matches!(self.state, State::Start)
            && let Some(end) = self.parse_complete(buffer)
        {
            return Ok(Some(end));
        }
        // The parser never looks beyond the limit, so the result does not depend on how the bytes
        // arrive.
        let window = &buffer[..buffer.len().min(self.limits.query_buffer_bytes_max)];
        match self.advance(window)? {
            Some(end) => {
                self.state = State::Start;
                self.received = 0;
                Ok(Some(end))
            }
            None if window.len() < buffer.len() => Err(ProtocolError::QueryBufferFull),
            None => {
                self.received = buffer.len();
                Ok(None)
            }
        }
    }

    /// Replaces `into` with the arguments of the request just completed.
    pub fn args<'a>(&'a self, buffer: &'a [u8], into: &mut Vec<&'a [u8]>) {
        into.clear();
        into.extend(self.iter(buffer));
    }

    /// The arguments of the request just completed. `buffer` must be the one passed to `parse`.
    pub fn iter<'a>(&'a self, buffer: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let source = if self.is_inline { &self.inline } else { buffer };
        self.spans.iter().map(move |span| {
            let start = span.start as usize;
            source.get(start..start + span.len as usize).unwrap_or_default()
        })
    }

    /// How many bytes the incomplete request still needs at least: a hint for allocation. It is
    /// bounded, since a declared size cannot be trusted.
    pub fn needed(&self) -> usize {
        let missing = match self.state {
            State::Body { len, .. } => {
                len.saturating_add(self.position + LINE_END_BYTES).saturating_sub(self.received)
            }
            _ => 1,
        };
        missing.clamp(1, NEEDED_BYTES_MAX)
    }

    /// Bytes allocated for an incomplete request, in addition to the caller's buffer.
    pub fn unfinished_bytes(&self) -> usize {
        match self.state {
            State::Start => 0,
            _ => self.spans.capacity() * size_of::<Span>() + self.inline.capacity(),
        }
    }

    /// The fast path of almost every request: it is complete and within all limits. `None` only
    /// means that the fast path does not apply.
    fn parse_complete(&mut self, buffer: &[u8]) -> Option<usize> {
        let (mut args_max, mut bulk_bytes_max) = (SPANS_KEPT_MAX, self.limits.bulk_bytes_max);
        if !self.authenticated {
            args_max = args_max.min(self.limits.unauthenticated_args_max);
            bulk_bytes_max = bulk_bytes_max.min(self.limits.unauthenticated_bulk_bytes_max);
        }
        let (count, mut position) = short_length(b'*', buffer)?;
        let is_usual = 0 < count && count <= args_max.min(self.limits.args_max);
        if !is_usual || self.spans.capacity() > SPANS_KEPT_MAX {
            return None;
        }
        self.is_inline = false;
        self.spans.clear();
        self.spans.reserve(count);
        for _ in 0..count {
            let (len, header_bytes) = short_length(b'$', buffer.get(position..)?)?;
            let start = position + header_bytes;
            position = start + len + LINE_END_BYTES;
            if position > buffer.len() || len > bulk_bytes_max {
                return None;
            }
            self.spans.push(Span { start: start as u32, len: len as u32 });
        }
        // Positions fit into 32 bits within this limit.
        (position <= self.limits.query_buffer_bytes_max).then_some(position)
    }

    fn advance(&mut self, window: &[u8]) -> Result<Option<usize>, ProtocolError> {
        loop {
            match self.state {
                State::Start => match window.first() {
                    None => return Ok(None),
                    Some(b'*') => self.begin(State::Count),
                    Some(_) => self.begin(State::Inline),
                },
                State::Inline => return self.inline(window),
                State::Count => match self.count(window)? {
                    None => return Ok(None),
                    Some(0) => return Ok(Some(self.position)),
                    Some(left) => self.state = State::Header { left },
                },
                State::Header { left } => match self.bulk_length(window)? {
                    None => return Ok(None),
                    Some(len) => self.state = State::Body { left, len },
                },
                State::Body { left, len } => {
                    let available = window.len().saturating_sub(self.position);
                    if available < len.saturating_add(LINE_END_BYTES) {
                        return Ok(None);
                    }
                    self.spans.push(Span::new(self.position, len));
                    // As in Redis, the two bytes of the line end are not checked.
                    self.position += len + LINE_END_BYTES;
                    if left == 1 {
                        return Ok(Some(self.position));
                    }
                    self.state = State::Header { left: left - 1 };
                }
            }
        }
    }

    /// Discards the previous request. The only way out of `Start`.
    fn begin(&mut self, state: State) {
        self.state = state;
        self.is_inline = matches!(state, State::Inline);
        self.position = 0;
        self.scanned = 0;
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
        self.inline.clear();
    }

    /// `*n`: the number of arguments, 0 for a negative one.
    fn count(&mut self, window: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.length_line(window, b'*', ProtocolError::TooBigMultibulkCount)?
        else {
            return Ok(None);
        };
        let count = match line {
            Line::Length(count) => count,
            Line::Other(text) => {
                let count = parse_integer(text.get(1..).unwrap_or_default())
                    .ok_or(ProtocolError::InvalidMultibulkLength)?;
                usize::try_from(count.max(0)).map_err(|_| ProtocolError::InvalidMultibulkLength)?
            }
        };
        if count > self.limits.args_max {
            return Err(ProtocolError::InvalidMultibulkLength);
        }
        if count > self.limits.unauthenticated_args_max && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedMultibulkLength);
        }
        Ok(Some(count))
    }

    /// `$n`: the length of the next argument.
    fn bulk_length(&mut self, window: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(line) = self.length_line(window, b'$', ProtocolError::TooBigBulkCount)? else {
            return Ok(None);
        };
        let len = match line {
            Line::Length(len) => len,
            Line::Other([b'$', digits @ ..]) => parse_integer(digits)
                .and_then(|len| usize::try_from(len).ok())
                .ok_or(ProtocolError::InvalidBulkLength)?,
            // An empty line begins with its line end.
            Line::Other(text) => {
                let got = text.first().copied().unwrap_or(b'\r');
                return Err(ProtocolError::ExpectedBulk(got));
            }
        };
        if len > self.limits.bulk_bytes_max {
            return Err(ProtocolError::InvalidBulkLength);
        }
        if len > self.limits.unauthenticated_bulk_bytes_max && !self.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        Ok(Some(len))
    }

    /// Takes the line at `position`, without its end: CR and one more byte, which Redis does not
    /// check.
    fn length_line<'a>(
        &mut self,
        window: &'a [u8],
        marker: u8,
        too_long: ProtocolError,
    ) -> Result<Option<Line<'a>>, ProtocolError> {
        let rest = window.get(self.position..).unwrap_or_default();
        if let Some((length, bytes)) = short_length(marker, rest) {
            self.position += bytes;
            return Ok(Some(Line::Length(length)));
        }
        let Some(end) = self.find_in_line(window, b'\r', too_long)? else {
            return Ok(None);
        };
        if end + LINE_END_BYTES > window.len() {
            return Ok(None);
        }
        let line = &window[self.position..end];
        self.position = end + LINE_END_BYTES;
        Ok(Some(Line::Other(line)))
    }

    /// An inline request: words on one line.
    fn inline(&mut self, window: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(end) = self.find_in_line(window, b'\n', ProtocolError::TooBigInlineRequest)?
        else {
            return Ok(None);
        };
        let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
        split_words(line, &mut self.inline, &mut self.spans)?;
        Ok(Some(end + 1))
    }

    /// Finds the next `byte` after `position`. Looks at no byte twice and not beyond the longest
    /// line.
    fn find_in_line(
        &mut self,
        window: &[u8],
        byte: u8,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let limit = self.position.saturating_add(self.limits.inline_bytes_max).saturating_add(1);
        let until = window.len().min(limit);
        let from = self.scanned.max(self.position).min(until);
        let found = memchr(byte, &window[from..until]).map(|offset| from + offset);
        self.scanned = found.unwrap_or(until);
        match found {
            None if until == limit => Err(too_long),
            found => Ok(found),
        }
    }
}

/// The state of the parser within a request.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Between requests; the arguments of the previous one can still be read.
    Start,
    Inline,
    Count,
    /// Before a `$` line; `left` arguments follow.
    Header {
        left: usize,
    },
    /// Before the `len` bytes of an argument.
    Body {
        left: usize,
        len: usize,
    },
}

/// The place of an argument.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// Creates a span. The query buffer's limit keeps both numbers within 32 bits.
    fn new(start: usize, len: usize) -> Span {
        debug_assert!(start + len <= POSITION_MAX);
        Span { start: start as u32, len: len as u32 }
    }
}

/// A line that holds a length: parsed, or text still to parse.
enum Line<'a> {
    Length(usize),
    Other(&'a [u8]),
}

/// The largest position a `Span` can hold.
const POSITION_MAX: usize = u32::MAX as usize;
/// CR and LF.
pub(crate) const LINE_END_BYTES: usize = 2;
/// The most bytes requested at once: as much as one large read.
const NEEDED_BYTES_MAX: usize = 64 * 1024;
/// Spans kept for the next request: a rare large request must not keep its memory.
const SPANS_KEPT_MAX: usize = 1024;
/// Digits parsed by the fast path: they cannot overflow, and longer numbers are rare.
const SHORT_DIGITS_MAX: usize = 9;

/// Parses a common line fast: the marker, a few digits without leading zeros, CR, any byte. Returns
/// the number and the length of the line; `None` only means that the fast path does not apply.
#[inline(always)]
pub(crate) fn short_length(marker: u8, rest: &[u8]) -> Option<(usize, usize)> {
    match *rest {
        [first, ones @ b'0'..=b'9', b'\r', _, ..] if first == marker => {
            Some((usize::from(ones - b'0'), 4))
        }
        [first, tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', _, ..] if first == marker => {
            Some((usize::from(tens - b'0') * 10 + usize::from(ones - b'0'), 5))
        }
        _ => longer_length(marker, rest),
    }
}

/// As [`short_length`], with up to [`SHORT_DIGITS_MAX`] digits.
fn longer_length(marker: u8, rest: &[u8]) -> Option<(usize, usize)> {
    let (first, digits) = rest.split_first()?;
    if *first != marker {
        return None;
    }
    let mut length = 0;
    for (count, byte) in digits.iter().take(SHORT_DIGITS_MAX + 1).enumerate() {
        match byte {
            b'0'..=b'9' if count < SHORT_DIGITS_MAX => {
                length = length * 10 + usize::from(byte - b'0');
            }
            b'\r' if count > 0 && digits.len() > count + 1 => {
                let canonical = count == 1 || digits[0] != b'0';
                return canonical.then_some((length, 1 + count + LINE_END_BYTES));
            }
            _ => return None,
        }
    }
    None
}

/// Splits an inline request into words.
fn split_words(
    line: &[u8],
    text: &mut Vec<u8>,
    words: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = words::skip_blanks(line);
    while !rest.is_empty() {
        let start = text.len();
        rest = words::take(rest, text).ok_or(ProtocolError::UnbalancedQuotes)?;
        words.push(Span::new(start, text.len() - start));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(authenticated: bool) -> Parser {
        let mut parser = Parser::new(Limits::default());
        parser.set_authenticated(authenticated);
        parser
    }

    /// All requests of `input`, words joined by `|`, then the error or `...` for an incomplete one.
    fn read(parser: &mut Parser, input: &[u8]) -> String {
        let mut shown = String::new();
        let mut rest = input;
        loop {
            match parser.parse(rest) {
                Ok(Some(end)) => {
                    let words: Vec<String> =
                        parser.iter(rest).map(|word| word.escape_ascii().to_string()).collect();
                    shown += &format!("[{}]", words.join("|"));
                    rest = &rest[end..];
                }
                Ok(None) => {
                    if !rest.is_empty() {
                        shown += "...";
                    }
                    return shown;
                }
                Err(error) => {
                    return shown + error.to_string().trim_start_matches("ERR Protocol error: ");
                }
            }
        }
    }

    /// The spans of the arguments received, and the buffer of an inline request before it.
    #[test]
    fn unfinished_bytes_counts_allocations_of_incomplete_request() {
        let part = |count: usize| "$1\r\na\r\n".repeat(count);
        let unfinished = "*1000\r\n".to_owned() + &part(500);
        let finished = unfinished.clone() + &part(500);
        let held_after = |line: &[u8]| {
            let mut parser = parser(true);
            assert_eq!(parser.unfinished_bytes(), 0);
            read(&mut parser, line);
            assert_eq!(parser.unfinished_bytes(), 0);
            assert_eq!(parser.parse(unfinished.as_bytes()), Ok(None));
            let held = parser.unfinished_bytes();
            assert_eq!(parser.parse(finished.as_bytes()), Ok(Some(finished.len())));
            assert_eq!(parser.unfinished_bytes(), 0);
            held
        };
        let held = held_after(b"");
        assert!((500..=2_000).contains(&(held / size_of::<Span>())), "{held}");
        assert!(held_after(b"PING \"unquoted\"\r\n") > held);
    }

    #[track_caller]
    fn check(input: impl AsRef<[u8]>, expected: &str) {
        assert_eq!(read(&mut parser(true), input.as_ref()), expected);
    }

    #[track_caller]
    fn check_unauthenticated(input: impl AsRef<[u8]>, expected: &str) {
        assert_eq!(read(&mut parser(false), input.as_ref()), expected);
    }

    #[test]
    fn multibulk_requests_are_parsed() {
        check("", "");
        check("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "[PING][ECHO|]");
        check("*1\r\n$4\r\nA\r\nB\r\n*1", "[A\\r\\nB]...");
        check("*0\r\n*-1\r\n*-10\r\n*-9223372036854775808\r\nPING\r\n", "[][][][][PING]");
        check("*1\r\n$4\r\nPINGxx*1\rx$4\rxPING\r\n", "[PING][PING]");
        check("*1\r", "...");
        check("*1\r\n$0\r\n", "...");
        check("*1\r\n$0\r\n\r", "...");
        check("*1\n$4\nPING\n", "...");
        check(format!("*1\r\n$12\r\n{}\r\n", "x".repeat(12)), "[xxxxxxxxxxxx]");
    }

    #[test]
    fn invalid_counts_are_errors() {
        let invalid = "invalid multibulk length";
        for count in ["", "x", " 1", "+1", "01", "1x", "-0", "2147483648", "99999999999999999999"] {
            check(format!("*{count}\r\n"), invalid);
            check_unauthenticated(format!("*{count}\r\n"), invalid);
        }
        check("*1\nPING\r\n", invalid);
        check("*2147483647\r\n", "...");
        check("*1\r\n$4\r\nPING\r\n*a\r\n", "[PING]invalid multibulk length");
        check_unauthenticated("*10\r\n", "...");
        check_unauthenticated("*11\r\n", "unauthenticated multibulk length");
    }

    #[test]
    fn invalid_lengths_are_errors() {
        let invalid = "invalid bulk length";
        for length in ["", "x", "-1", "-0", "04", "+4", "536870913", "99999999999999999999"] {
            check(format!("*1\r\n${length}\r\nPING\r\n"), invalid);
            check_unauthenticated(format!("*1\r\n${length}\r\n"), invalid);
        }
        check("*1\r\n$4\nPING\r\n", invalid);
        check("*1\r\n$536870912\r\n", "...");
        check_unauthenticated("*1\r\n$16384\r\n", "...");
        check_unauthenticated("*1\r\n$16385\r\n", "unauthenticated bulk length");
    }

    #[test]
    fn argument_without_dollar_is_error() {
        check("*1\r\n@", "...");
        check("*1\r\nPING\r\n", "expected '$', got 'P'");
        check("*1\r\n*4\r\nPING\r\n", "expected '$', got '*'");
        check("*1\r\n\r\n", "expected '$', got ' '");
        check("*1\r\n\n3\r\n", "expected '$', got ' '");
        let error = ProtocolError::ExpectedBulk(0xff);
        let line = b"ERR Protocol error: expected '$', got '\xff'";
        assert_eq!(Reply::from(error), Reply::Error(line.as_slice().into()));
    }

    #[test]
    fn inline_requests_are_parsed() {
        check("PING\nPING\r\n   PING  \r\n", "[PING][PING][PING]");
        check("\r\n\n  \r\n", "[][][]");
        check("PING \r\r\nPING a\rb\tc\r\n", "[PING][PING|a|b|c]");
        check("PING\x0bb \x0cc\r\n", "[PING\\x0bb|c]");
        check("ECHO a\0b", "...");
        check("ECHO a\0b\n", "[ECHO|a\\x00b]");
        check(b"ECHO a\xa0\x85\n", "[ECHO|a\\xa0\\x85]");
    }

    #[test]
    fn quotes_in_inline_requests_are_parsed() {
        check(r#"ECHO "a\x41\n\r\t\b\a\xfF\\\"" b"#, "...");
        check(
            "E \"a\\x41\\n\\r\\t\\b\\a\\xfF\\\\\\\"\" b\n",
            "[E|aA\\n\\r\\t\\x08\\x07\\xff\\\\\\\"|b]",
        );
        check("E \"\\q\\xZZ\\x4\"\n", "[E|qxZZx4]");
        check("E 'a\\'b\\n'\n", "[E|a\\'b\\\\n]");
        check("E '' \"\"\n'' a\n", "[E||][|a]");
        check("E a\"b c\" a'b c'\n", "[E|ab c|ab c]");
        for words in ["\"a\"b", "\"a", "'a'b", "'a", "a\"b\"c", "\"\\\"", "\"\\", "'\\x41\\\\'"] {
            check(format!("E {words}\r\n"), "unbalanced quotes in request");
        }
    }

    #[test]
    fn lines_without_end_are_errors() {
        let line = "1".repeat(64 * 1024);
        check(&line[..], "...");
        check(format!("{line}1"), "too big inline request");
        check(format!("{line}1\n"), "too big inline request");
        check(format!("{line}\n"), &format!("[{line}]"));
        check(format!("*{line}"), "too big mbulk count string");
        check(format!("*1\r\n${line}"), "too big bulk count string");
        check(format!("*1\r\n{line}1"), "too big bulk count string");
    }

    #[test]
    fn request_above_the_query_buffer_limit_is_an_error() {
        let limits = Limits { query_buffer_bytes_max: 14, ..Limits::default() };
        for (input, expected) in [
            ("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n", "[PING][PING]"),
            ("*1\r\n$5\r\nPINGS\r\n", "query buffer limit exceeded"),
            ("*1\r\n$5\r\nPINGS\r", "..."),
        ] {
            assert_eq!(read(&mut Parser::new(limits), input.as_bytes()), expected);
        }
    }

    #[test]
    fn limits_can_change_between_requests() {
        let mut parser = parser(false);
        parser.set_bulk_bytes_max(3);
        assert_eq!(read(&mut parser, b"*1\r\n$4\r\nPING\r\n"), "invalid bulk length");
        let mut parser = Parser::new(Limits::default());
        assert_eq!(read(&mut parser, b"AUTH x\r\n"), "[AUTH|x]");
        parser.set_authenticated(true);
        assert_eq!(read(&mut parser, b"*11\r\n$99999\r\n"), "...");
    }

    #[test]
    fn needed_is_a_bounded_hint() {
        let mut parser = parser(true);
        for (input, expected) in [
            ("*", 1),
            ("*1\r\n$40", 1),
            ("*1\r\n$40\r\n", 42),
            ("*1\r\n$40\r\n0123456789", 32),
            ("*1\r\n$40\r\n0123456789012345678901234567890123456789\r", 1),
        ] {
            assert_eq!(parser.parse(input.as_bytes()), Ok(None));
            assert_eq!(parser.needed(), expected, "{input:?}");
        }
        let mut parser = Parser::new(Limits::default());
        parser.set_authenticated(true);
        assert_eq!(parser.parse(b"*1\r\n$536870912\r\n"), Ok(None));
        assert_eq!(parser.needed(), NEEDED_BYTES_MAX);
    }

    #[test]
    fn declared_sizes_do_not_allocate() {
        let mut parser = parser(true);
        assert_eq!(parser.parse(b"*2147483647\r\n$536870912\r\n"), Ok(None));
        assert_eq!((parser.spans.capacity(), parser.inline.capacity()), (0, 0));
    }

    #[test]
    fn memory_is_proportional_to_bytes_received() {
        let mut parser = parser(true);
        let mut buffer = b"*2147483647\r\n".to_vec();
        for _ in 0..10_000 {
            buffer.extend_from_slice(b"$0\r\n\r\n");
            assert_eq!(parser.parse(&buffer), Ok(None));
            let held = parser.spans.capacity() * size_of::<Span>();
            // Eight bytes for every six on the wire, and a vector doubles its capacity.
            assert!(held <= 3 * buffer.len() + 64, "{held} for {}", buffer.len());
        }
    }

    #[test]
    fn memory_of_large_request_is_freed() {
        let mut parser = parser(true);
        let large = format!("*100000\r\n{}", "$0\r\n\r\n".repeat(100_000));
        assert_eq!(parser.parse(large.as_bytes()), Ok(Some(large.len())));
        assert_eq!(parser.iter(large.as_bytes()).len(), 100_000);
        assert_eq!(parser.parse(b"*1\r\n$4\r\nPING\r\n"), Ok(Some(14)));
        assert!(parser.spans.capacity() <= SPANS_KEPT_MAX);
    }

    #[test]
    fn complete_request_obeys_all_limits() {
        let request = |count: usize, len: usize| {
            format!("*{count}\r\n{}", format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(count))
        };
        let words =
            |count: usize, len: usize| format!("[{}]", vec!["x".repeat(len); count].join("|"));
        check_unauthenticated(request(10, 1), &words(10, 1));
        check_unauthenticated(request(11, 1), "unauthenticated multibulk length");
        check_unauthenticated(request(1, 16_384), &words(1, 16_384));
        check_unauthenticated(request(1, 16_385), "unauthenticated bulk length");
        check(request(11, 16_385), &words(11, 16_385));
        let limits = Limits { args_max: 3, bulk_bytes_max: 4, ..Limits::default() };
        for (count, len, expected) in [
            (3, 4, words(3, 4)),
            (4, 4, "invalid multibulk length".to_owned()),
            (3, 5, "invalid bulk length".to_owned()),
        ] {
            let mut parser = Parser::new(limits);
            parser.set_authenticated(true);
            assert_eq!(read(&mut parser, request(count, len).as_bytes()), expected);
        }
    }

    #[test]
    fn request_may_arrive_in_pieces() {
        for (count, len) in
            [(1, 0), (1, 9), (2, 10), (9, 99), (10, 100), (99, 3), (100, 2), (1000, 1)]
        {
            let bulk = format!("${len}\r\n{}\r\n", "x".repeat(len));
            let input = format!("*{count}\r\n{}", bulk.repeat(count));
            let mut pieces = parser(true);
            for end in 0..input.len() {
                assert_eq!(pieces.parse(&input.as_bytes()[..end]), Ok(None), "{end} of {input:?}");
            }
            for mut parser in [pieces, parser(true)] {
                assert_eq!(parser.parse(input.as_bytes()), Ok(Some(input.len())));
                let mut args = vec![&b"of the request before"[..]];
                parser.args(input.as_bytes(), &mut args);
                assert_eq!(args, vec!["x".repeat(len).as_bytes(); count]);
            }
        }
    }
}
