//! Matches Lua's patterns in a bounded number of steps. Works on bytes only.
//!
//! Results and errors are those of Lua 5.1, except for the error after too many steps.

use crate::convert::c_string;

/// Captures of one pattern.
pub(crate) const CAPTURES_MAX: usize = 32;
/// How deeply a match may recurse. The stack of a thread is limited.
const DEPTH_MAX: usize = 200;
const TOO_LONG: Malformed = "pattern matching takes too long";

/// A capture of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// These bytes of the subject.
    Range(usize, usize),
    /// A position, counted from zero.
    Position(usize),
    /// A capture that is not closed yet.
    Open(usize),
}

/// A match: its range and its captures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) count: usize,
    pub(crate) captures: [Capture; CAPTURES_MAX],
}

/// Why a pattern cannot be matched: the text of Lua's error.
pub(crate) type Malformed = &'static str;

/// The steps of one search.
pub(crate) struct Budget<'a> {
    /// The steps that are left.
    pub(crate) steps: u64,
    /// Called with the number of steps since the last call. Returns whether to go on.
    pub(crate) poll: &'a mut dyn FnMut(u64) -> bool,
}

/// Steps between two polls of the host: some 10 microseconds.
pub(crate) const STEPS_PER_POLL: u64 = 1 << 11;

/// Finds the first match at or after `from`. With `anchored`, only `from` is tried: the pattern had a
/// leading `^`, which the caller has removed.
pub(crate) fn search(
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    anchored: bool,
    budget: &mut Budget<'_>,
) -> Result<Option<Match>, Malformed> {
    let mut matcher = Matcher {
        subject,
        pattern,
        count: 0,
        captures: [Capture::Open(0); CAPTURES_MAX],
        depth: 0,
        budget,
    };
    let last = if anchored { from } else { subject.len() };
    for start in from..=last {
        matcher.count = 0;
        if let Some(end) = matcher.run(start, 0)? {
            let (count, captures) = (matcher.count, matcher.captures);
            return Ok(Some(Match { start, end, count, captures }));
        }
    }
    Ok(None)
}

/// Reads a pattern as Lua does, up to the first zero byte. Returns whether it had a leading `^`,
/// and the rest.
pub(crate) fn parse(pattern: &[u8]) -> (bool, &[u8]) {
    // Lua ends a pattern at a zero byte.
    let pattern = c_string(pattern);
    match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    }
}

/// Whether a pattern has no special characters, so that a plain search is enough.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !c_string(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// The position of `pattern` in `subject` at or after `from`.
pub(crate) fn find_plain(subject: &[u8], pattern: &[u8], from: usize) -> Option<usize> {
    let rest = subject.get(from..)?;
    if pattern.is_empty() {
        return Some(from);
    }
    memchr::memmem::find(rest, pattern).map(|at| from + at)
}

struct Matcher<'a, 'b, 'c> {
    subject: &'a [u8],
    pattern: &'a [u8],
    count: usize,
    captures: [Capture; CAPTURES_MAX],
    depth: usize,
    budget: &'b mut Budget<'c>,
}

impl Matcher<'_, '_, '_> {
    /// Matches the pattern from `p` at `s`. Returns the end of the match. Only parts that may have
    /// to be reverted recurse; the others loop.
    fn run(&mut self, s: usize, p: usize) -> Result<Option<usize>, Malformed> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("pattern too complex");
        }
        let end = self.advance(s, p);
        self.depth -= 1;
        end
    }

    fn advance(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Malformed> {
        loop {
            self.step()?;
            match self.pattern.get(p..).unwrap_or_default() {
                [] => return Ok(Some(s)),
                [b'(', b')', ..] => return self.capture(s, p + 2, Capture::Position(s)),
                [b'(', ..] => return self.capture(s, p + 1, Capture::Open(s)),
                [b')', ..] => return self.close(s, p + 1),
                [b'$'] => return Ok((s == self.subject.len()).then_some(s)),
                [b'%', b'b', ..] => match self.balance(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                [b'%', b'f', ..] => {
                    if self.pattern.get(p + 2) != Some(&b'[') {
                        return Err("missing '[' after '%f' in pattern");
                    }
                    let end = self.class_end(p + 2)?;
                    let before = if s == 0 { 0 } else { self.subject[s - 1] };
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p + 2, end) || !self.in_set(here, p + 2, end) {
                        return Ok(None);
                    }
                    p = end;
                }
                [b'%', digit @ b'0'..=b'9', ..] => match self.back_reference(s, *digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    let fits = self.fits(s, p, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if fits && let Some(found) = self.run(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.greedy(s, p, end),
                        Some(b'+') if fits => return self.greedy(s + 1, p, end),
                        Some(b'-') => return self.lazy(s, p, end),
                        Some(b'+') => return Ok(None),
                        _ if fits => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn step(&mut self) -> Result<(), Malformed> {
        let left = self.budget.steps.checked_sub(1).ok_or(TOO_LONG)?;
        self.budget.steps = left;
        if left % STEPS_PER_POLL == 0 && !(self.budget.poll)(STEPS_PER_POLL) {
            return Err(TOO_LONG);
        }
        Ok(())
    }

    /// Matches as often as possible, then less often.
    fn greedy(&mut self, s: usize, p: usize, end: usize) -> Result<Option<usize>, Malformed> {
        let mut count = 0;
        while self.fits(s + count, p, end) {
            self.step()?;
            count += 1;
        }
        loop {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// Matches as rarely as possible, then more often.
    fn lazy(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Malformed> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn capture(&mut self, s: usize, p: usize, what: Capture) -> Result<Option<usize>, Malformed> {
        let Some(slot) = self.captures.get_mut(self.count) else {
            return Err("too many captures");
        };
        *slot = what;
        self.count += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.count -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, Malformed> {
        let open = self.captures[..self.count]
            .iter()
            .rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some(at) = open else { return Err("invalid pattern capture") };
        let before = self.captures[at];
        if let Capture::Open(start) = before {
            self.captures[at] = Capture::Range(start, s);
        }
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[at] = before;
        }
        Ok(found)
    }

    fn balance(&mut self, s: usize, p: usize) -> Result<Option<usize>, Malformed> {
        let (Some(open), Some(close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern");
        };
        if self.subject.get(s) != Some(open) {
            return Ok(None);
        }
        let mut depth = 1;
        for (i, byte) in self.subject.iter().enumerate().skip(s + 1) {
            self.step()?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(i + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Result<Option<usize>, Malformed> {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let captured = index.and_then(|index| self.captures[..self.count].get(index));
        let (start, end) = match captured {
            Some(Capture::Range(start, end)) => (*start, *end),
            // A position has no bytes that could occur again.
            Some(Capture::Position(_)) => return Ok(None),
            _ => return Err("invalid capture index"),
        };
        let (captured, rest) = (&self.subject[start..end], &self.subject[s..]);
        self.budget.steps = self.budget.steps.saturating_sub(captured.len() as u64 / 8);
        Ok(rest.starts_with(captured).then_some(s + captured.len()))
    }

    /// The end of the single-character class at `p`.
    fn class_end(&self, p: usize) -> Result<usize, Malformed> {
        match self.pattern[p] {
            b'%' if p + 1 >= self.pattern.len() => Err("malformed pattern (ends with '%')"),
            b'%' => Ok(p + 2),
            b'[' => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    let Some(byte) = self.pattern.get(at) else {
                        return Err("malformed pattern (missing ']')");
                    };
                    at += 1;
                    if *byte == b'%' && at < self.pattern.len() {
                        at += 1;
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    fn fits(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(byte) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            b'%' => in_class(*byte, self.pattern[p + 1]),
            b'[' => self.in_set(*byte, p, end),
            literal => literal == *byte,
        }
    }

    /// Whether a byte is in the set `[...]` from `p` to before `end`.
    fn in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut set = &self.pattern[p + 1..end - 1];
        let wanted = match set {
            [b'^', rest @ ..] => {
                set = rest;
                false
            }
            _ => true,
        };
        loop {
            let hit;
            (hit, set) = match set {
                [] => return !wanted,
                [b'%', class, rest @ ..] => (in_class(byte, *class), rest),
                [low, b'-', high, rest @ ..] => ((*low..=*high).contains(&byte), rest),
                [literal, rest @ ..] => (*literal == byte, rest),
            };
            if hit {
                return wanted;
            }
        }
    }
}

fn in_class(byte: u8, class: u8) -> bool {
    let found = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 11,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    found != class.is_ascii_uppercase()
}
