//! Splits a script's text into tokens of the subset.

use super::parse::{Outside, Result};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or a keyword.
    Name(&'a [u8]),
    Text(Vec<u8>),
    Number(f64),
    /// One or two characters.
    Symbol(&'static str),
    End,
}

/// The longest first.
const SYMBOLS: &[&str] = &[
    "==", "~=", "<=", ">=", "..", "=", "<", ">", "+", "-", "*", "/", "%", "#", "(", ")", "{", "}",
    "[", "]", ",", ";", ".",
];
/// Most digits of an integer that is certainly converted exactly.
const INTEGER_DIGITS_MAX: usize = 15;

/// The tokens with their lines, at most `tokens_max`.
pub(super) fn tokens(text: &[u8], tokens_max: usize) -> Result<Vec<(Token<'_>, u32)>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let ended = token == Token::End;
        tokens.push((token, lexer.line));
        if ended {
            return Ok(tokens);
        }
        if tokens.len() > tokens_max {
            return Err(lexer.outside("a text so long"));
        }
    }
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> Result<Token<'a>> {
        self.skip_blanks()?;
        let Some(first) = self.peek(0) else { return Ok(Token::End) };
        match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(Token::Name(self.name())),
            b'0'..=b'9' => self.number(),
            b'\'' | b'"' => self.quoted(first),
            _ => self.symbol(),
        }
    }

    fn skip_blanks(&mut self) -> Result<()> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C => self.at += 1,
                b'-' if self.peek(1) == Some(b'-') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn skip_comment(&mut self) -> Result<()> {
        if self.peek(2) == Some(b'[') && matches!(self.peek(3), Some(b'[' | b'=')) {
            return Err(self.outside("a long comment"));
        }
        while self.peek(0).is_some_and(|byte| !matches!(byte, b'\n' | b'\r')) {
            self.at += 1;
        }
        Ok(())
    }

    fn name(&mut self) -> &'a [u8] {
        let start = self.at;
        while self.peek(0).is_some_and(is_of_name) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn number(&mut self) -> Result<Token<'a>> {
        let start = self.at;
        while self.peek(0).is_some_and(|byte| is_of_name(byte) || byte == b'.') {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let plain = match text.iter().position(|byte| *byte == b'.') {
            Some(dot) => digits(&text[..dot]) && digits(&text[dot + 1..]),
            None => digits(text),
        };
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        match number {
            Some(number) if plain && text.len() <= INTEGER_DIGITS_MAX => Ok(Token::Number(number)),
            _ => Err(self.outside("a number written like this")),
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<Token<'a>> {
        let mut text = Vec::new();
        self.at += 1;
        loop {
            let Some(byte) = self.peek(0) else { return Err(self.outside("an open string")) };
            self.at += 1;
            match byte {
                b'\\' => text.push(self.escaped()?),
                b'\n' | b'\r' => return Err(self.outside("an open string")),
                _ if byte == quote => return Ok(Token::Text(text)),
                _ => text.push(byte),
            }
        }
    }

    /// The character after a backslash.
    fn escaped(&mut self) -> Result<u8> {
        let Some(byte) = self.peek(0) else { return Err(self.outside("an open string")) };
        self.at += 1;
        Ok(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            b'\\' | b'"' | b'\'' => byte,
            b'0'..=b'9' => {
                let mut code = u32::from(byte - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'9') = self.peek(0) else { break };
                    code = code * 10 + u32::from(digit - b'0');
                    self.at += 1;
                }
                u8::try_from(code).map_err(|_| self.outside("an escape sequence like this"))?
            }
            _ => return Err(self.outside("an escape sequence like this")),
        })
    }

    fn symbol(&mut self) -> Result<Token<'a>> {
        let rest = &self.text[self.at..];
        if rest.starts_with(b"...") || rest.starts_with(b"[[") || rest.starts_with(b"[=") {
            return Err(self.outside("`...` or a long string"));
        }
        let found = SYMBOLS.iter().find(|symbol| rest.starts_with(symbol.as_bytes()));
        let Some(symbol) = found else { return Err(self.outside("a character like this")) };
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn outside(&self, what: &'static str) -> Outside {
        Outside { line: self.line, what }
    }
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
