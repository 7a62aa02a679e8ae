//! The kinds of values of directives: reading, checking and printing. Errors are in Redis's words.
//! This module contains no directive names.

use std::fmt;

use super::types::{ClientClass, OutputBufferLimit, SavePoint, buffer_limits};
use crate::store::events::Events;
use crate::timing::time::{self, Millis, SPAN_SYNTAX};

/// The kind of a directive's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueKind {
    /// `yes` or `no`.
    Bool,
    /// A decimal integer within two inclusive bounds.
    Int(i64, i64),
    /// As [`ValueKind::Int`], in seconds.
    Seconds(i64, i64),
    /// As [`ValueKind::Int`], in milliseconds.
    Milliseconds(i64, i64),
    /// Any frequency, limited as in Redis.
    Frequency,
    /// Permission bits in octal, up to this maximum.
    Octal(u32),
    /// Bytes with an optional unit (`1kb` is 1024, `1k` is 1000), within two inclusive bounds.
    Memory(u64, u64),
    /// Bytes, or a percentage of `maxmemory` such as `5%`.
    MemoryOrPercent,
    /// A span of time, which is not negative; see [`time::span`].
    Span,
    /// One of these names, ignoring case.
    Choice(&'static [&'static str]),
    /// Any of these names, ignoring case.
    Choices(&'static [&'static str]),
    /// Any text.
    Text,
    /// A file name without a directory; the text is the error for a path.
    FileName(&'static str),
    /// Any number of words.
    Words,
    /// Addresses to listen on.
    Addresses,
    /// `replicaof`: a host and a port, or `no one`.
    HostAndPort,
    /// Pairs of seconds and changes.
    SavePoints,
    /// Numbers between 0 and 100.
    Percentiles,
    /// Three scores between -2000 and 2000.
    OomScores,
    /// The letters of `notify-keyspace-events`.
    Events,
    /// Groups of class, hard limit, soft limit and seconds.
    BufferLimits,
}

/// A value that its [`ValueKind`] has checked. `Display` writes it as Redis prints it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`ValueKind::Bool`].
    Bool(bool),
    /// Of [`ValueKind::Int`].
    Int(i64),
    /// Of [`ValueKind::Seconds`].
    Seconds(u64),
    /// Of [`ValueKind::Milliseconds`].
    Milliseconds(u64),
    /// Of [`ValueKind::Octal`].
    Octal(u32),
    /// Of [`ValueKind::Memory`].
    Memory(u64),
    /// Of [`ValueKind::Span`].
    Span(Millis),
    /// One word of text, in the spelling that Redis prints.
    Text(String),
    /// Of the kinds with several words.
    Words(Vec<String>),
    /// Of [`ValueKind::SavePoints`].
    SavePoints(Vec<SavePoint>),
    /// Of [`ValueKind::Events`].
    Events(Events),
    /// Of [`ValueKind::BufferLimits`]: the named classes only.
    BufferLimits(Vec<(ClientClass, OutputBufferLimit)>),
}

/// Maximum number of addresses of `bind`, as in Redis. Hosts have far fewer interfaces.
const ADDRESSES_MAX: usize = 16;

impl ValueKind {
    /// Whether the value consists of several words, so that a single text is split at its spaces.
    pub fn takes_words(self) -> bool {
        use ValueKind::{Addresses, BufferLimits, Choices, HostAndPort};
        use ValueKind::{OomScores, Percentiles, SavePoints, Words};
        let several = matches!(self, Words | Addresses | HostAndPort | Choices(_) | BufferLimits);
        several || matches!(self, SavePoints | Percentiles | OomScores)
    }

    /// Reads a value; the error is in Redis's words.
    pub fn read(self, words: &[&str]) -> Result<Value, String> {
        if self.takes_words() {
            return match words {
                [""] => self.read_words(&[]),
                [text] => self.read_words(&text.split(' ').collect::<Vec<_>>()),
                words => self.read_words(words),
            };
        }
        match words {
            [word] => self.read_word(word),
            _ => Err(WRONG_NUMBER.into()),
        }
    }

    fn read_word(self, word: &str) -> Result<Value, String> {
        match self {
            ValueKind::Bool => match word.to_ascii_lowercase().as_str() {
                "yes" => Ok(Value::Bool(true)),
                "no" => Ok(Value::Bool(false)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            ValueKind::Int(min, max) => int(word, min, max).map(Value::Int),
            ValueKind::Seconds(min, max) => {
                int(word, min, max).map(|number| Value::Seconds(number.unsigned_abs()))
            }
            ValueKind::Milliseconds(min, max) => {
                int(word, min, max).map(|number| Value::Milliseconds(number.unsigned_abs()))
            }
            ValueKind::Frequency => {
                int(word, 0, i32::MAX.into()).map(|number| Value::Int(number.clamp(1, 500)))
            }
            ValueKind::Octal(max) => octal(word, max).map(Value::Octal),
            ValueKind::Memory(min, max) => {
                let bytes = memory(word).ok_or("argument must be a memory value")?;
                between(bytes, min, max).map(Value::Memory)
            }
            ValueKind::MemoryOrPercent => memory_or_percent(word),
            ValueKind::Span => match time::span(word.as_bytes()) {
                Some(span) if span.0 >= 0 => Ok(Value::Span(span)),
                _ => Err(format!("argument is {SPAN_SYNTAX}")),
            },
            ValueKind::Choice(names) => Ok(Value::Text(names[choice(word, names)?].into())),
            ValueKind::FileName(refusal) if word.contains('/') => Err(refusal.into()),
            ValueKind::Events => {
                let events = Events::parse(word);
                events.map(Value::Events).ok_or_else(|| {
                    "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_string()
                })
            }
            _ => Ok(Value::Text(word.into())),
        }
    }

    fn read_words(self, words: &[&str]) -> Result<Value, String> {
        match self {
            ValueKind::Addresses if words.len() > ADDRESSES_MAX => {
                return Err("Too many bind addresses specified.".into());
            }
            ValueKind::HostAndPort => return host_and_port(words),
            ValueKind::Choices(names) => return choices(words, names),
            ValueKind::SavePoints => return save_points(words),
            ValueKind::Percentiles => return percentiles(words),
            ValueKind::OomScores => oom_scores(words)?,
            ValueKind::BufferLimits => {
                let limits = buffer_limits(words)?;
                return Ok(Value::BufferLimits(limits));
            }
            _ => {}
        }
        Ok(Value::Words(words.iter().map(|&word| word.into()).collect()))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(yes) => f.write_str(if *yes { "yes" } else { "no" }),
            Value::Int(number) => write!(f, "{number}"),
            Value::Seconds(number) | Value::Milliseconds(number) => write!(f, "{number}"),
            Value::Octal(bits) => write!(f, "{bits:o}"),
            Value::Memory(bytes) => write!(f, "{bytes}"),
            Value::Span(Millis(span_ms)) => write!(f, "{span_ms}ms"),
            Value::Text(text) => f.write_str(text),
            Value::Words(words) => f.write_str(&words.join(" ")),
            Value::SavePoints(points) => {
                f.write_str(&points.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
            Value::Events(events) => f.write_str(&events.letters()),
            Value::BufferLimits(limits) => {
                let group =
                    |(class, limit): &(ClientClass, OutputBufferLimit)| format!("{class} {limit}");
                f.write_str(&limits.iter().map(group).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// Redis's error for too few or too many words.
pub const WRONG_NUMBER: &str = "wrong number of arguments";

/// Bytes with an optional unit, such as `100`, `1kb`, `1K` or `2GB`; an empty text is 0.
pub(super) fn memory(word: &str) -> Option<u64> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = word.split_at(digits);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if number.is_empty() {
        return word.is_empty().then_some(0);
    }
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Parses a decimal integer in the only notation that Redis accepts: no plus sign, leading zero or
/// space.
fn integer(word: &str) -> Option<i64> {
    let number: i64 = word.parse().ok()?;
    (number.to_string() == word).then_some(number)
}

fn int(word: &str, min: i64, max: i64) -> Result<i64, String> {
    let number = integer(word).ok_or("argument couldn't be parsed into an integer")?;
    between(number, min, max)
}

fn between<N: Copy + PartialOrd + fmt::Display>(number: N, min: N, max: N) -> Result<N, String> {
    if number < min || number > max {
        return Err(format!("argument must be between {min} and {max} inclusive"));
    }
    Ok(number)
}

fn octal(word: &str, max: u32) -> Result<u32, String> {
    let bits = u32::from_str_radix(word, 8);
    let bits = bits.map_err(|_| "argument couldn't be parsed as an octal number")?;
    if bits > max {
        return Err(format!("argument must be between 0 and {max:o} inclusive"));
    }
    Ok(bits)
}

fn memory_or_percent(word: &str) -> Result<Value, String> {
    const REFUSED: &str = "argument must be a memory or percent value";
    let Some(share) = word.strip_suffix('%') else {
        return Ok(Value::Memory(memory(word).ok_or(REFUSED)?));
    };
    match integer(share).ok_or(REFUSED)? {
        0 => Ok(Value::Memory(0)),
        1..=100 => Ok(Value::Text(word.into())),
        101.. => Err("percentage argument must be less or equal to 100".into()),
        _ => Err(REFUSED.into()),
    }
}

fn choice(word: &str, names: &[&str]) -> Result<usize, String> {
    let found = names.iter().position(|name| name.eq_ignore_ascii_case(word));
    found.ok_or_else(|| format!("argument(s) must be one of the following: {}", names.join(", ")))
}

/// Prints the chosen names in the order of `names`. The first name means none of the others.
fn choices(words: &[&str], names: &[&str]) -> Result<Value, String> {
    let chosen: Vec<usize> =
        words.iter().map(|word| choice(word, names)).collect::<Result<_, _>>()?;
    let named = |name: &str| chosen.iter().any(|&index| names[index] == name);
    if named("save") && named("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    let mut text: Vec<String> = Vec::new();
    text.extend(names.iter().skip(1).filter(|name| named(name)).map(|name| name.to_string()));
    if text.is_empty() {
        text.extend(names.first().map(|name| name.to_string()));
    }
    Ok(Value::Words(text))
}

fn host_and_port(words: &[&str]) -> Result<Value, String> {
    let &[host, port] = words else {
        let none = words.is_empty().then(|| Value::Words(Vec::new()));
        return none.ok_or_else(|| WRONG_NUMBER.into());
    };
    if host.eq_ignore_ascii_case("no") && port.eq_ignore_ascii_case("one") {
        return Ok(Value::Words(Vec::new()));
    }
    match integer(port) {
        Some(0..=65535) => Ok(Value::Words(vec![host.into(), port.into()])),
        _ => Err("Invalid master port".into()),
    }
}

fn save_points(words: &[&str]) -> Result<Value, String> {
    let read = |pair: &[&str]| match *pair {
        [seconds, changes] => Some(SavePoint {
            seconds: integer(seconds).filter(|&seconds| seconds > 0)?,
            changes: u64::try_from(integer(changes)?).ok()?,
        }),
        _ => None,
    };
    let points = words.chunks(2).map(read).collect::<Option<_>>();
    points.map(Value::SavePoints).ok_or_else(|| "Invalid save parameters".into())
}

fn percentiles(words: &[&str]) -> Result<Value, String> {
    const NAME: &str = "latency-tracking-info-percentiles parameters";
    let read = |word: &&str| {
        let number: f64 = word.parse().map_err(|_| format!("Invalid {NAME}"))?;
        if !(0.0..=100.0).contains(&number) {
            return Err(format!("{NAME} should sit between [0.0,100.0]"));
        }
        Ok(number.to_string())
    };
    words.iter().map(read).collect::<Result<_, _>>().map(Value::Words)
}

fn oom_scores(words: &[&str]) -> Result<(), String> {
    if words.len() != 3 {
        return Err(WRONG_NUMBER.into());
    }
    if words.iter().all(|word| integer(word).is_some_and(|score| score.abs() <= 2000)) {
        return Ok(());
    }
    Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
}

/// What is shown instead of a word that may be a password, as in Redis.
pub const REDACTED: &[u8] = b"(redacted)";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: ValueKind, words: &[&str], expected: Result<&str, &str>) {
        let printed = kind.read(words).map(|value| value.to_string());
        assert_eq!(printed.as_deref().map_err(|text| text.as_str()), expected, "{words:?}");
    }

    #[test]
    fn numbers_are_decimal_and_within_their_range() {
        let port = ValueKind::Int(0, 65535);
        check(port, &["6379"], Ok("6379"));
        check(port, &["65536"], Err("argument must be between 0 and 65535 inclusive"));
        for odd in ["", " 5", "5 ", "+5", "05", "-0", "0x10", "1kb", "9223372036854775808"] {
            check(port, &[odd], Err("argument couldn't be parsed into an integer"));
        }
        check(port, &["1", "2"], Err("wrong number of arguments"));
        check(port, &[], Err("wrong number of arguments"));
        let octal = ValueKind::Octal(0o777);
        check(octal, &["700"], Ok("700"));
        check(octal, &["79"], Err("argument couldn't be parsed as an octal number"));
        check(octal, &["1777"], Err("argument must be between 0 and 777 inclusive"));
    }

    #[test]
    fn memory_sizes_have_units() {
        let kind = ValueKind::Memory(0, u64::MAX);
        for (text, bytes) in [
            ("", "0"),
            ("05", "5"),
            ("1b", "1"),
            ("1k", "1000"),
            ("1kb", "1024"),
            ("1M", "1000000"),
            ("1mb", "1048576"),
            ("1g", "1000000000"),
            ("1GB", "1073741824"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            check(kind, &[text], Ok(bytes));
        }
        for odd in
            ["abc", "kb", "1x", "-1", "+5", " 5", "5 ", "1 b", "1.5gb", "10%", "99999999999gb"]
        {
            check(kind, &[odd], Err("argument must be a memory value"));
        }
        let bounded = ValueKind::Memory(1 << 20, i64::MAX as u64);
        let range = "argument must be between 1048576 and 9223372036854775807 inclusive";
        check(bounded, &["1kb"], Err(range));
        check(ValueKind::MemoryOrPercent, &["50%"], Ok("50%"));
        check(ValueKind::MemoryOrPercent, &["0%"], Ok("0"));
        let over = "percentage argument must be less or equal to 100";
        check(ValueKind::MemoryOrPercent, &["101%"], Err(over));
        let neither = "argument must be a memory or percent value";
        check(ValueKind::MemoryOrPercent, &["10%%"], Err(neither));
    }

    #[test]
    fn names_are_accepted_in_any_case() {
        check(ValueKind::Bool, &["YES"], Ok("yes"));
        check(ValueKind::Bool, &["1"], Err("argument must be 'yes' or 'no'"));
        let kind = ValueKind::Choice(&["no", "yes", "local"]);
        check(kind, &["Local"], Ok("local"));
        check(kind, &["x"], Err("argument(s) must be one of the following: no, yes, local"));
        let kind = ValueKind::Choices(&["default", "save", "nosave", "now", "force"]);
        check(kind, &["force now"], Ok("now force"));
        check(kind, &["now", "force"], Ok("now force"));
        check(kind, &["default"], Ok("default"));
        let both = "shutdown options SAVE and NOSAVE can't be used simultaneously";
        check(kind, &["nosave save"], Err(both));
    }

    #[test]
    fn buffer_limits_are_given_per_client_class() {
        let kind = ValueKind::BufferLimits;
        check(kind, &["replica 1kb 0 5 PUBSUB 0 0 0"], Ok("slave 1024 0 5 pubsub 0 0 0"));
        check(kind, &["normal", "1", "2", "3"], Ok("normal 1 2 3"));
        check(kind, &[""], Ok(""));
        let count = "Wrong number of arguments in buffer limit configuration.";
        check(kind, &["normal 0 0"], Err(count));
        check(kind, &["normal 0 0 0  pubsub 0 0 0"], Err(count));
        let class = "Invalid client class specified in buffer limit configuration.";
        check(kind, &["master 0 0 0"], Err(class));
        let number = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        for odd in ["normal -1 0 0", "normal 0 1x 0", "normal 0 0 -1"] {
            check(kind, &[odd], Err(number));
        }
    }

    #[test]
    fn lists_accept_one_or_several_words() {
        check(ValueKind::Addresses, &["127.0.0.1", "-::1"], Ok("127.0.0.1 -::1"));
        check(ValueKind::Addresses, &["127.0.0.1 -::1"], Ok("127.0.0.1 -::1"));
        check(ValueKind::Addresses, &[""], Ok(""));
        check(ValueKind::Addresses, &["a"; 17], Err("Too many bind addresses specified."));
        check(ValueKind::HostAndPort, &["no", "one"], Ok(""));
        check(ValueKind::HostAndPort, &["db", "6379"], Ok("db 6379"));
        check(ValueKind::HostAndPort, &["db"], Err("wrong number of arguments"));
        check(ValueKind::SavePoints, &["900 1 60 5"], Ok("900 1 60 5"));
        check(ValueKind::SavePoints, &[""], Ok(""));
        for odd in ["1 1 2", "a b", "0 1", "900 -1", "900 1 0", "  900  1 "] {
            check(ValueKind::SavePoints, &[odd], Err("Invalid save parameters"));
        }
        check(ValueKind::OomScores, &["1 2"], Err("wrong number of arguments"));
        let scores = "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
        check(ValueKind::OomScores, &["1 2 3000"], Err(scores));
        check(ValueKind::OomScores, &["1 2 a"], Err(scores));
        let odd = "Invalid latency-tracking-info-percentiles parameters";
        check(ValueKind::Percentiles, &["50  99"], Err(odd));
        let range = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        check(ValueKind::Percentiles, &["101"], Err(range));
    }
}
