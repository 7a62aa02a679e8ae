//! `cjson`: values as JSON. Works on values only.

use bytes::Bytes;

use super::{
    CHUNK_BYTES, Constant, LibraryCall, LibraryError, LibraryFunction, RustLibrary, VALUE_WORK,
    spend,
};
use crate::lua_number::{strtod, write_general};
use crate::value::Value;

pub(super) const LIBRARY: RustLibrary = RustLibrary {
    name: "cjson",
    functions: &[
        LibraryFunction { name: "decode", run: decode },
        LibraryFunction { name: "decode_invalid_numbers", run: decode_invalid_numbers },
        LibraryFunction { name: "decode_max_depth", run: decode_max_depth },
        LibraryFunction { name: "encode", run: encode },
        LibraryFunction { name: "encode_invalid_numbers", run: encode_invalid_numbers },
        LibraryFunction { name: "encode_keep_buffer", run: encode_keep_buffer },
        LibraryFunction { name: "encode_max_depth", run: encode_max_depth },
        LibraryFunction { name: "encode_number_precision", run: encode_number_precision },
        LibraryFunction { name: "encode_sparse_array", run: encode_sparse_array },
    ],
    constants: &[
        ("_NAME", Constant::Text("cjson")),
        ("_VERSION", Constant::Text("2.1.0")),
        ("null", Constant::Null),
    ],
};

/// The limit of JSON nesting, whatever a script sets: decoding recurses on a thread's stack.
const NESTING_MAX: usize = 1_000;

/// The settings of a script. Every script starts from the defaults, so that no script changes
/// another's results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    sparse_convert: bool,
    sparse_ratio: i32,
    sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    precision: i32,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1_000,
            decode_max_depth: 1_000,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refuse,
            decode_invalid: true,
        }
    }
}

/// How a number that JSON cannot represent is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refuse,
    Write,
    Null,
}

// ---------------------------------------------------------------------------------------------
// Settings

fn encode_sparse_array(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    at_most(call, 3)?;
    let mut settings = call.cjson;
    set_switch(call, 1, &mut settings.sparse_convert)?;
    set_integer(call, 2, &mut settings.sparse_ratio, 0, i32::MAX)?;
    set_integer(call, 3, &mut settings.sparse_safe, 0, i32::MAX)?;
    call.cjson = settings;
    call.results.push(Value::Boolean(settings.sparse_convert));
    call.results.push(Value::Number(f64::from(settings.sparse_ratio)));
    call.result(Value::Number(f64::from(settings.sparse_safe)))
}

fn encode_max_depth(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    integer_setting(call, |settings| &mut settings.encode_max_depth, i32::MAX)
}

fn decode_max_depth(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    integer_setting(call, |settings| &mut settings.decode_max_depth, i32::MAX)
}

fn encode_number_precision(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    integer_setting(call, |settings| &mut settings.precision, 14)
}

fn encode_keep_buffer(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    switch_setting(call, |settings| &mut settings.keep_buffer)
}

fn decode_invalid_numbers(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    switch_setting(call, |settings| &mut settings.decode_invalid)
}

fn encode_invalid_numbers(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    at_most(call, 1)?;
    if matches!(call.args.first(), Some(Value::Bytes(text)) if text == "null".as_bytes()) {
        call.cjson.encode_invalid = Invalid::Null;
    } else if !call.missing(1) {
        let mut write = false;
        set_switch(call, 1, &mut write)?;
        call.cjson.encode_invalid = if write { Invalid::Write } else { Invalid::Refuse };
    }
    let result = match call.cjson.encode_invalid {
        Invalid::Refuse => Value::Boolean(false),
        Invalid::Write => Value::Boolean(true),
        Invalid::Null => Value::literal("null"),
    };
    call.result(result)
}

fn integer_setting(
    call: &mut LibraryCall<'_>,
    field: fn(&mut Settings) -> &mut i32,
    max: i32,
) -> Result<(), LibraryError> {
    at_most(call, 1)?;
    let mut settings = call.cjson;
    set_integer(call, 1, field(&mut settings), 1, max)?;
    call.cjson = settings;
    let value = *field(&mut settings);
    call.result(Value::Number(f64::from(value)))
}

fn switch_setting(
    call: &mut LibraryCall<'_>,
    field: fn(&mut Settings) -> &mut bool,
) -> Result<(), LibraryError> {
    at_most(call, 1)?;
    let mut settings = call.cjson;
    set_switch(call, 1, field(&mut settings))?;
    call.cjson = settings;
    let value = *field(&mut settings);
    call.result(Value::Boolean(value))
}

fn set_integer(
    call: &LibraryCall<'_>,
    at: usize,
    slot: &mut i32,
    min: i32,
    max: i32,
) -> Result<(), LibraryError> {
    if call.missing(at) {
        return Ok(());
    }
    match i32::try_from(call.integer(at)?) {
        Ok(value) if (min..=max).contains(&value) => *slot = value,
        _ => {
            let text = format!("expected integer between {min} and {max}");
            return Err(LibraryError::Argument(at, text));
        }
    }
    Ok(())
}

fn set_switch(call: &LibraryCall<'_>, at: usize, slot: &mut bool) -> Result<(), LibraryError> {
    match call.args.get(at - 1) {
        None | Some(Value::Nil) => {}
        Some(Value::Boolean(value)) => *slot = *value,
        _ => match &call.bytes(at)?[..] {
            b"on" => *slot = true,
            b"off" => *slot = false,
            other => {
                let text = format!("invalid option '{}'", String::from_utf8_lossy(other));
                return Err(LibraryError::Argument(at, text));
            }
        },
    }
    Ok(())
}

fn at_most(call: &LibraryCall<'_>, count: usize) -> Result<(), LibraryError> {
    if call.args.len() <= count {
        return Ok(());
    }
    Err(LibraryError::Argument(count + 1, "found too many arguments".to_owned()))
}

fn exactly_one(call: &LibraryCall<'_>) -> Result<(), LibraryError> {
    if call.args.len() == 1 {
        return Ok(());
    }
    Err(LibraryError::Argument(1, "expected 1 argument".to_owned()))
}

// ---------------------------------------------------------------------------------------------
// Encoding

fn encode(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    exactly_one(call)?;
    let LibraryCall { cjson: settings, bytes_max, work, .. } = *call;
    let mut encoder = Encoder { out: Vec::new(), settings, bytes_max, work };
    encoder.value(&call.args[0], 0)?;
    call.result(Value::Bytes(encoder.out.into()))
}

struct Encoder<'a> {
    out: Vec<u8>,
    settings: Settings,
    bytes_max: usize,
    work: &'a dyn Fn(usize) -> bool,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), LibraryError> {
        if self.out.len() > self.bytes_max {
            return Err(LibraryError::memory());
        }
        spend(self.work, VALUE_WORK)?;
        match value {
            Value::Bytes(text) => self.string(text)?,
            Value::Number(number) => self.number(*number)?,
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Nil | Value::Null => self.out.extend_from_slice(b"null"),
            Value::Table(entries) => {
                self.check_depth(depth + 1)?;
                match self.array_length(entries)? {
                    Some(len) => self.array(entries, len, depth + 1)?,
                    None => self.object(entries, depth + 1)?,
                }
            }
            Value::TooDeep => return Err(excessive_nesting(depth + 1)),
            Value::Other(name) => return Err(cannot(name, "type not supported")),
        }
        Ok(())
    }

    fn check_depth(&self, depth: usize) -> Result<(), LibraryError> {
        if depth > self.settings.encode_max_depth as usize {
            return Err(excessive_nesting(depth));
        }
        Ok(())
    }

    /// The greatest index, if all keys are indexes and the array is not too sparse.
    fn array_length(&self, entries: &[(Value, Value)]) -> Result<Option<u64>, LibraryError> {
        let mut max = 0_f64;
        for (key, _) in entries {
            match key {
                Value::Number(at) if *at >= 1.0 && at.fract() == 0.0 => max = max.max(*at),
                _ => return Ok(None),
            }
        }
        if max == 0.0 || max > f64::from(i32::MAX) {
            return Ok(None);
        }
        let settings = self.settings;
        let dense = entries.len() as f64 * f64::from(settings.sparse_ratio);
        if settings.sparse_ratio > 0 && max > dense && max > f64::from(settings.sparse_safe) {
            if settings.sparse_convert {
                return Ok(None);
            }
            return Err(cannot("table", "excessively sparse array"));
        }
        Ok(Some(max as u64))
    }

    fn array(
        &mut self,
        entries: &[(Value, Value)],
        len: u64,
        depth: usize,
    ) -> Result<(), LibraryError> {
        let index = |key: &Value| if let Value::Number(at) = key { *at as u64 } else { 0 };
        let mut items: Vec<_> = entries.iter().map(|(key, value)| (index(key), value)).collect();
        items.sort_by_key(|(at, _)| *at);
        let mut items = items.into_iter().peekable();
        self.out.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.out.push(b',');
            }
            let item = items.next_if(|(next, _)| *next == at);
            self.value(item.map_or(&Value::Nil, |(_, value)| value), depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, entries: &[(Value, Value)], depth: usize) -> Result<(), LibraryError> {
        self.out.push(b'{');
        for (i, (key, value)) in entries.iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            match key {
                Value::Number(number) => {
                    self.out.push(b'"');
                    self.number(*number)?;
                    self.out.push(b'"');
                }
                Value::Bytes(text) => self.string(text)?,
                other => {
                    let why = "table key must be a number or string";
                    return Err(cannot(other.type_name(), why));
                }
            }
            self.out.push(b':');
            self.value(value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<(), LibraryError> {
        if number.is_finite() {
            write_general(&mut self.out, number, self.settings.precision as usize);
            return Ok(());
        }
        match self.settings.encode_invalid {
            Invalid::Refuse => return Err(cannot("number", "must not be NaN or Inf")),
            Invalid::Null => self.out.extend_from_slice(b"null"),
            Invalid::Write if number.is_nan() => self.out.extend_from_slice(b"nan"),
            Invalid::Write => write_general(&mut self.out, number, 14),
        }
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> Result<(), LibraryError> {
        self.out.push(b'"');
        for chunk in text.chunks(CHUNK_BYTES) {
            spend(self.work, 2 * chunk.len())?;
            self.escaped(chunk);
        }
        self.out.push(b'"');
        Ok(())
    }

    fn escaped(&mut self, text: &[u8]) {
        for byte in text {
            let short = match byte {
                b'"' | b'\\' | b'/' => *byte,
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                12 => b'f',
                b'\r' => b'r',
                0..=31 | 127 => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
    }
}

fn cannot(what: &str, why: &str) -> LibraryError {
    LibraryError::error(format!("Cannot serialise {what}: {why}"))
}

fn excessive_nesting(depth: usize) -> LibraryError {
    LibraryError::error(format!("Cannot serialise, excessive nesting ({depth})"))
}

// ---------------------------------------------------------------------------------------------
// Decoding

fn decode(call: &mut LibraryCall<'_>) -> Result<(), LibraryError> {
    exactly_one(call)?;
    let text = call.bytes(1)?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(LibraryError::error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder {
        text: &text,
        at: 0,
        depth: 0,
        settings: call.cjson,
        values_left: call.bytes_max / 64,
        work: call.work,
        worked: 0,
    };
    let first = decoder.token();
    let value = decoder.value(first)?;
    match decoder.token() {
        (Token::End, _) => call.result(value),
        other => Err(unexpected("the end", &other)),
    }
}

struct Decoder<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    settings: Settings,
    values_left: usize,
    work: &'a dyn Fn(usize) -> bool,
    /// Position up to which the work has been counted.
    worked: usize,
}

enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text(Bytes),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Decoder<'_> {
    fn value(&mut self, (token, at): (Token, usize)) -> Result<Value, LibraryError> {
        self.values_left = self.values_left.checked_sub(1).ok_or_else(LibraryError::memory)?;
        spend(self.work, VALUE_WORK + self.at - self.worked)?;
        self.worked = self.at;
        match token {
            Token::Text(text) => Ok(Value::Bytes(text)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(value) => Ok(Value::Boolean(value)),
            Token::Null => Ok(Value::Null),
            Token::ObjectBegin => self.object(),
            Token::ArrayBegin => self.array(),
            other => Err(unexpected("value", &(other, at))),
        }
    }

    fn object(&mut self) -> Result<Value, LibraryError> {
        self.descend()?;
        let mut entries = Vec::new();
        let mut next = self.token();
        if !matches!(next.0, Token::ObjectEnd) {
            loop {
                let (Token::Text(key), _) = next else {
                    return Err(unexpected("object key string", &next));
                };
                let colon = self.token();
                if !matches!(colon.0, Token::Colon) {
                    return Err(unexpected("colon", &colon));
                }
                let first = self.token();
                entries.push((Value::Bytes(key), self.value(first)?));
                match self.token() {
                    (Token::ObjectEnd, _) => break,
                    (Token::Comma, _) => next = self.token(),
                    other => return Err(unexpected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(entries))
    }

    fn array(&mut self) -> Result<Value, LibraryError> {
        self.descend()?;
        let mut items = Vec::new();
        let mut next = self.token();
        if !matches!(next.0, Token::ArrayEnd) {
            loop {
                items.push(self.value(next)?);
                match self.token() {
                    (Token::ArrayEnd, _) => break,
                    (Token::Comma, _) => next = self.token(),
                    other => return Err(unexpected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::array(items))
    }

    fn descend(&mut self) -> Result<(), LibraryError> {
        self.depth += 1;
        if self.depth > (self.settings.decode_max_depth as usize).min(NESTING_MAX) {
            return Err(LibraryError::error(format!(
                "Found too many nested data structures ({}) at character {}",
                self.depth, self.at
            )));
        }
        Ok(())
    }

    /// The next token and its position.
    fn token(&mut self) -> (Token, usize) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
            if !self.goes_on() {
                return (Token::Error(""), self.at);
            }
        }
        let start = self.at;
        let token = match self.peek() {
            b'{' => self.punctuation(Token::ObjectBegin),
            b'}' => self.punctuation(Token::ObjectEnd),
            b'[' => self.punctuation(Token::ArrayBegin),
            b']' => self.punctuation(Token::ArrayEnd),
            b',' => self.punctuation(Token::Comma),
            b':' => self.punctuation(Token::Colon),
            0 => Token::End,
            b'"' => return self.string(),
            b'-' | b'+' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        };
        (token, start)
    }

    /// The current byte; zero at the end, and for a zero in the text.
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Counts the work if there has been much since the last time. Returns whether to go on.
    fn goes_on(&mut self) -> bool {
        if self.at - self.worked < CHUNK_BYTES {
            return true;
        }
        let amount = 2 * (self.at - self.worked);
        self.worked = self.at;
        (self.work)(amount)
    }

    fn punctuation(&mut self, token: Token) -> Token {
        self.at += 1;
        token
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let words = [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        let starts =
            |word: &[u8]| rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(word));
        if self.settings.decode_invalid && (starts(b"inf") || starts(b"nan")) {
            return self.number();
        }
        Token::Error("invalid token")
    }

    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        if !self.settings.decode_invalid {
            match rest {
                [b'+', ..] => return Token::Error("invalid token"),
                _ if is_invalid_number(rest) => return Token::Error("invalid number"),
                _ => {}
            }
        }
        match strtod(rest) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => Token::Error("invalid number"),
        }
    }

    fn string(&mut self) -> (Token, usize) {
        let start = self.at;
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek() {
                0 => return (Token::Error("unexpected end of string"), self.at),
                b'"' => break,
                b'\\' => {
                    if let Err(why) = self.escape(&mut out) {
                        return (Token::Error(why), self.at);
                    }
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
            if !self.goes_on() {
                return (Token::Error(""), self.at);
            }
        }
        self.at += 1;
        (Token::Text(out.into()), start)
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.text.get(self.at + 1) {
            Some(b'u') => return self.unicode(out),
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            _ => return Err("invalid escape code"),
        };
        out.push(byte);
        self.at += 2;
        Ok(())
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        const INVALID: &str = "invalid unicode escape code";
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix(b"\\u")?;
            let digits = std::str::from_utf8(digits).ok()?;
            let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            if hex { u32::from_str_radix(digits, 16).ok() } else { None }
        };
        let first = unit(self.at).ok_or(INVALID)?;
        let (code, len) = match first {
            0xD800..=0xDBFF => match unit(self.at + 6) {
                Some(second @ 0xDC00..=0xDFFF) => {
                    (0x10000 + ((first & 0x3FF) << 10 | second & 0x3FF), 12)
                }
                _ => return Err(INVALID),
            },
            _ => (first, 6),
        };
        let character = char::from_u32(code).ok_or(INVALID)?;
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        Ok(())
    }
}

/// Numbers that `strtod` reads and JSON does not allow.
fn is_invalid_number(text: &[u8]) -> bool {
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
        [b'0'..=b'9', ..] => false,
        _ => true,
    }
}

fn unexpected(wanted: &str, (token, at): &(Token, usize)) -> LibraryError {
    let found = match token {
        Token::ObjectBegin => "T_OBJ_BEGIN",
        Token::ObjectEnd => "T_OBJ_END",
        Token::ArrayBegin => "T_ARR_BEGIN",
        Token::ArrayEnd => "T_ARR_END",
        Token::Text(_) => "T_STRING",
        Token::Number(_) => "T_NUMBER",
        Token::Boolean(_) => "T_BOOLEAN",
        Token::Null => "T_NULL",
        Token::Colon => "T_COLON",
        Token::Comma => "T_COMMA",
        Token::End => "T_END",
        Token::Error(why) => why,
    };
    LibraryError::error(format!("Expected {wanted} but found {found} at character {}", at + 1))
}
