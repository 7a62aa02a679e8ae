//! Histories: what clients asked of locks, when, and what they were told. A text that people can
//! read and that is read back, so that what a judge objected to can be kept and judged again.
//!
//! ```text
//! # microseconds      lock  client  action            what it was told
//! 100..250            l     a       acquire 30ms      granted token 7 count 1
//! 300..420            l     b       acquire 30ms      refused 29ms
//! 500..?              l     a       renew 30ms        unknown
//! 20000..20100        l     a       release           released
//! 20200..20300        l     b       acquire shared 5s granted
//! ```
//!
//! What is unknown came to pass between the two times, or never.
//!
//! A client of a history is an owner: two threads of one program that may not share a lock are
//! two. Names have no white space.

use std::fmt::{self, Write};

/// Something a client asked of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The lock.
    pub lock: String,
    /// Who asked.
    pub client: String,
    /// What it asked.
    pub action: Action,
    /// When it began to ask.
    pub invoked_us: i64,
    /// When it had the answer. Without an answer: when it could no longer come to pass; `None` if
    /// it always may.
    pub returned_us: Option<i64>,
    /// What it was told.
    pub outcome: Outcome,
    /// The fencing token it was told.
    pub token: Option<i64>,
    /// How many times it was told to hold the lock then.
    pub count: Option<i64>,
}

/// What a client asks of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To hold it so long, alone or with others who share it.
    Acquire {
        /// For how long.
        ttl_us: i64,
        /// Whether others may hold it as well if they share it, too.
        shared: bool,
    },
    /// To hold it so long from now on.
    Renew {
        /// For how long.
        ttl_us: i64,
    },
    /// To hold it once less; if it is still held then, so long from now on.
    Release {
        /// For how long, if that changes.
        ttl_us: Option<i64>,
    },
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds the lock.
    Granted,
    /// Somebody else does, and for so long at most.
    Refused {
        /// How long the holder's lease still runs.
        remaining_us: Option<i64>,
    },
    /// It does not hold the lock any more.
    Released,
    /// It holds the lock still, once less.
    Kept,
    /// It did not hold the lock.
    NotOwner,
    /// Nothing.
    Unknown,
}

/// What is wrong with a text that should be a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1.
    pub number: usize,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.problem)
    }
}

impl std::error::Error for Mistake {}

/// Reads a history.
pub fn read(text: &str) -> Result<Vec<Event>, Mistake> {
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<_> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let event = Event::read(&words);
        events.push(event.map_err(|problem| Mistake { number: index + 1, problem })?);
    }
    Ok(events)
}

/// Writes a history, in the order it has.
pub fn write(events: &[Event]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        let _ = writeln!(text, "{event}");
        text
    })
}

/// At most `count` events of a lock that went on at about that time, in the order of time.
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
    /// What was asked, and nothing told yet.
    pub fn asked(lock: &str, client: &str, action: Action, invoked_us: i64) -> Event {
        Event {
            lock: lock.to_owned(),
            client: client.to_owned(),
            action,
            invoked_us,
            returned_us: None,
            outcome: Outcome::Unknown,
            token: None,
            count: None,
        }
    }

    /// The same with what was told, and when.
    pub fn told(mut self, outcome: Outcome, returned_us: i64) -> Event {
        self.outcome = outcome;
        self.returned_us = Some(returned_us);
        self
    }

    fn read(words: &[&str]) -> Result<Event, String> {
        let [times, lock, client, action, rest @ ..] = words else {
            return Err("times, lock, client, action and outcome".to_owned());
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
        event.outcome = match rest.next().unwrap_or_default() {
            "granted" => Outcome::Granted,
            "refused" => {
                let is_span = |word: &&str| word.starts_with(|it: char| it.is_ascii_digit());
                let remaining_us = rest.next_if(is_span).map(span).transpose()?;
                Outcome::Refused { remaining_us }
            }
            "released" => Outcome::Released,
            "kept" => Outcome::Kept,
            "not-owner" => Outcome::NotOwner,
            "unknown" => Outcome::Unknown,
            other => return Err(not_a("outcome", other)),
        };
        if event.returned_us.is_none() && event.outcome != Outcome::Unknown {
            return Err("what was told something returned".to_owned());
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
        write!(f, " {} {} {} {}", self.lock, self.client, self.action, self.outcome)?;
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Outcome::Granted => f.write_str("granted"),
            Outcome::Refused { remaining_us: None } => f.write_str("refused"),
            Outcome::Refused { remaining_us: Some(it) } => write!(f, "refused {}", Span(it)),
            Outcome::Released => f.write_str("released"),
            Outcome::Kept => f.write_str("kept"),
            Outcome::NotOwner => f.write_str("not-owner"),
            Outcome::Unknown => f.write_str("unknown"),
        }
    }
}

/// Microseconds, as they are written.
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

fn not_a(what: &str, text: &str) -> String {
    format!("not a {what}: {text:?}")
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
    fn what_is_written_is_read_back() {
        assert_eq!(write(&read(TEXT).expect("well-formed")), TEXT);
    }

    #[test]
    fn mistakes_are_named_by_their_line() {
        let check = |text: &str, expected: &str| {
            let mistake = read(text).expect_err("a mistake");
            assert_eq!(mistake.to_string(), expected, "{text}");
        };
        check("# x\n\n1..2 l a", "line 3: times, lock, client, action and outcome");
        check("1-2 l a release released", "line 1: not a time: \"1-2\"");
        check("1..x l a release released", "line 1: not a number: \"x\"");
        check("1..2 l a acquire granted", "line 1: not a action: \"acquire\"");
        check("1..2 l a acquire 3h granted", "line 1: not a span of time: \"3h\"");
        check("1..2 l a release gone", "line 1: not a outcome: \"gone\"");
        check("1..? l a release released", "line 1: what was told something returned");
        check("1..2 l a release released colour 1", "line 1: not a name: \"colour\"");
    }

    #[test]
    fn a_story_is_what_went_on_at_about_that_time() {
        let events = read(TEXT).expect("well-formed");
        let story = around(&events, "l", 810, 3);
        let begins: Vec<_> = story.iter().filter_map(|line| line.split("..").next()).collect();
        assert_eq!(begins, ["500", "600", "800"]);
    }
}
