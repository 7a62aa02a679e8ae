//! Histories: the requests of clients to locks, their times and the answers. The text format is
//! readable and is parsed back, so that a history with a violation can be stored and judged again.
//!
//! ```text
//! # microseconds      lock  client  action            answer
//! 100..250            l     a       acquire 30ms      granted token 7 count 1
//! 300..420            l     b       acquire 30ms      refused 29ms
//! 500..?              l     a       renew 30ms        unknown
//! 20000..20100        l     a       release           released
//! 20200..20300        l     b       acquire shared 5s granted
//! ```
//!
//! An action with an unknown answer took effect between the two times, or never.
//!
//! A client of a history is an owner of locks: two threads of one program that must exclude each
//! other are two clients. Names have no white space.

use std::fmt::{self, Write};

/// One request of a client to a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The lock.
    pub lock: String,
    /// The client.
    pub client: String,
    /// The request.
    pub action: Action,
    /// When the request was sent.
    pub invoked_us: i64,
    /// When the answer was received. Without an answer: when the request could no longer take
    /// effect; `None` if it still may at any time.
    pub returned_us: Option<i64>,
    /// The answer.
    pub answer: Answer,
    /// The fencing token in the answer.
    pub token: Option<i64>,
    /// The number of holds in the answer.
    pub count: Option<i64>,
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Acquire the lock, exclusively or shared.
    Acquire {
        /// The lease.
        ttl_us: i64,
        /// Whether other clients may hold it at the same time, if they share it too.
        shared: bool,
    },
    /// Start the lease again.
    Renew {
        /// The lease.
        ttl_us: i64,
    },
    /// Release one hold; if the client still holds the lock, start the lease again.
    Release {
        /// The lease, if it changes.
        ttl_us: Option<i64>,
    },
}

/// The kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The client holds the lock.
    Granted,
    /// Another client holds the lock.
    Refused {
        /// The remaining time of the holder's lease.
        remaining_us: Option<i64>,
    },
    /// The client no longer holds the lock.
    Released,
    /// The client still holds the lock, with one hold fewer.
    Kept,
    /// The client did not hold the lock.
    NotOwner,
    /// There was no answer.
    Unknown,
}

/// An error in the text of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub number: usize,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.problem)
    }
}

impl std::error::Error for ParseError {}

/// Parses a history.
pub fn read(text: &str) -> Result<Vec<Event>, ParseError> {
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<_> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let event = Event::read(&words);
        events.push(event.map_err(|problem| ParseError { number: index + 1, problem })?);
    }
    Ok(events)
}

/// Writes a history in the given order.
pub fn write(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        let _ = writeln!(text, "{event}");
        text
    })
}

/// At most `count` events of a lock that are nearest to that time, sorted by time.
pub fn around(events: &[Event], lock: &str, at_us: i64, count: usize) -> Vec<String> {
    let mut near: Vec<&Event> = events.iter().filter(|event| event.lock == lock).collect();
    near.sort_by_key(|event| match event.returned_us {
        Some(returned_us) if returned_us < at_us => at_us - returned_us,
        _ => (event.invoked_us - at_us).max(0),
    });
    near.truncate(count);
    near.sort_by_key(|event| (event.invoked_us, event.returned_us));
    near.into_iter().map(Event::to_string).collect()
}

impl Event {
    /// A request without an answer yet.
    pub fn asked(lock: &str, client: &str, action: Action, invoked_us: i64) -> Event {
        Event {
            lock: lock.to_owned(),
            client: client.to_owned(),
            action,
            invoked_us,
            returned_us: None,
            answer: Answer::Unknown,
            token: None,
            count: None,
        }
    }

    /// The same with its answer.
    pub fn answered(mut self, answer: Answer, returned_us: i64) -> Event {
        self.answer = answer;
        self.returned_us = Some(returned_us);
        self
    }

    fn read(words: &[&str]) -> Result<Event, String> {
        let [times, lock, client, action, rest @ ..] = words else {
            return Err("times, lock, client, action and answer".to_owned());
        };
        let (invoked, returned) = times.split_once("..").ok_or_else(|| not_a("time", times))?;
        let number = |text: &str| text.parse::<i64>().map_err(|_| not_a("number", text));
        let mut event =
            Event::asked(lock, client, Action::Release { ttl_us: None }, number(invoked)?);
        event.returned_us = if returned == "?" { None } else { Some(number(returned)?) };
        let shared = rest.first() == Some(&"shared");
        let mut rest = rest[usize::from(shared)..].iter().copied().peekable();
        let ttl = rest.next_if(|word| word.starts_with(|it: char| it.is_ascii_digit()));
        let ttl_us = ttl.map(span).transpose()?;
        event.action = match (*action, ttl_us) {
            ("acquire", Some(ttl_us)) => Action::Acquire { ttl_us, shared },
            ("renew", Some(ttl_us)) => Action::Renew { ttl_us },
            ("release", ttl_us) => Action::Release { ttl_us },
            _ => return Err(not_a("action", action)),
        };
        event.answer = match rest.next().unwrap_or_default() {
            "granted" => Answer::Granted,
            "refused" => {
                let is_span = |word: &&str| word.starts_with(|it: char| it.is_ascii_digit());
                let remaining_us = rest.next_if(is_span).map(span).transpose()?;
                Answer::Refused { remaining_us }
            }
            "released" => Answer::Released,
            "kept" => Answer::Kept,
            "not-owner" => Answer::NotOwner,
            "unknown" => Answer::Unknown,
            other => return Err(not_a("answer", other)),
        };
        if event.returned_us.is_none() && event.answer != Answer::Unknown {
            return Err("an event with an answer has a return time".to_owned());
        }
        while let Some(name) = rest.next() {
            let value = Some(number(rest.next().unwrap_or_default())?);
            match name {
                "token" => event.token = value,
                "count" => event.count = value,
                other => return Err(not_a("name", other)),
            }
        }
        Ok(event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.returned_us {
            Some(returned_us) => write!(f, "{}..{returned_us}", self.invoked_us)?,
            None => write!(f, "{}..?", self.invoked_us)?,
        }
        write!(f, " {} {} {} {}", self.lock, self.client, self.action, self.answer)?;
        if let Some(token) = self.token {
            write!(f, " token {token}")?;
        }
        if let Some(count) = self.count {
            write!(f, " count {count}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Action::Acquire { ttl_us, shared } => {
                let shared = if shared { "shared " } else { "" };
                write!(f, "acquire {shared}{}", Span(ttl_us))
            }
            Action::Renew { ttl_us } => write!(f, "renew {}", Span(ttl_us)),
            Action::Release { ttl_us: None } => f.write_str("release"),
            Action::Release { ttl_us: Some(ttl_us) } => write!(f, "release {}", Span(ttl_us)),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Answer::Granted => f.write_str("granted"),
            Answer::Refused { remaining_us: None } => f.write_str("refused"),
            Answer::Refused { remaining_us: Some(it) } => write!(f, "refused {}", Span(it)),
            Answer::Released => f.write_str("released"),
            Answer::Kept => f.write_str("kept"),
            Answer::NotOwner => f.write_str("not-owner"),
            Answer::Unknown => f.write_str("unknown"),
        }
    }
}

/// Microseconds in their text form.
struct Span(i64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1000 == 0 => write!(f, "{}ms", us / 1000),
            us => write!(f, "{us}us"),
        }
    }
}

fn span(text: &str) -> Result<i64, String> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let unit_us = match &text[end..] {
        "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        _ => return Err(not_a("span of time", text)),
    };
    let number = text[..end].parse().ok().and_then(|number: i64| number.checked_mul(unit_us));
    number.ok_or_else(|| not_a("span of time", text))
}

fn not_a(kind: &str, text: &str) -> String {
    format!("invalid {kind}: {text:?}")
}

#[cfg(test)]
mod tests {
    use super::{around, read, write};

    const TEXT: &str = "\
100..250 l a acquire 30ms granted token 7 count 1
300..420 l b acquire shared 1500us refused 29ms
500..? l a renew 2s unknown
600..700 l a release 30ms kept count 1
800..900 l a release released
950..960 l b renew 1s not-owner
970..980 l b release unknown
";

    #[test]
    fn written_history_is_parsed_back() {
        assert_eq!(write(&read(TEXT).expect("well-formed")), TEXT);
    }

    #[test]
    fn parse_errors_name_the_line() {
        let check = |text: &str, expected: &str| {
            let error = read(text).expect_err("an error");
            assert_eq!(error.to_string(), expected, "{text}");
        };
        check("# x\n\n1..2 l a", "line 3: times, lock, client, action and answer");
        check("1-2 l a release released", "line 1: invalid time: \"1-2\"");
        check("1..x l a release released", "line 1: invalid number: \"x\"");
        check("1..2 l a acquire granted", "line 1: invalid action: \"acquire\"");
        check("1..2 l a acquire 3h granted", "line 1: invalid span of time: \"3h\"");
        check("1..2 l a release gone", "line 1: invalid answer: \"gone\"");
        check("1..? l a release released", "line 1: an event with an answer has a return time");
        check("1..2 l a release released colour 1", "line 1: invalid name: \"colour\"");
    }

    #[test]
    fn around_returns_nearest_events() {
        let events = read(TEXT).expect("well-formed");
        let story = around(&events, "l", 810, 3);
        let begins: Vec<_> = story.iter().filter_map(|line| line.split("..").next()).collect();
        assert_eq!(begins, ["500", "600", "800"]);
    }
}
