//! Conversations with an engine under a simulated clock, which the unit tests of the commands are
//! written in.
//!
//! Steps are separated by `;`. A step is a command (`SET k v`), a command of another client (`b>
//! GET k`), an advance of the clock (`+10ms`, `+1us`), a step of the wall clock alone (`wall+10ms`,
//! `wall-10ms`), the output of another client (`b<`), or the end of its connection (`b!`). The
//! expected result follows `=>` in a short notation: `OK`, `3`, `"bulk"`, `nil`, `nil-array`,
//! `[1, 2]`, `{k: v}`, `~[set]`, `>[push]`, `2.5` (double), `#t`, `!ERR line`; `...` matches
//! any text. An error must be expected: without `=>` any other reply is right.

use std::collections::BTreeMap;

use bytes::BytesMut;
use lockwheel_resp::{Reply, decode::decode};

use crate::engine::inputs::Process;
use crate::replication::nodes::Nodes;
use crate::sessions::pubsub::Subscription;
use crate::sessions::{ClientId, Origin};
use crate::settings::Settings;
use crate::store::events::Events;
use crate::timing::time::{Millis, Time};
use crate::{Engine, Flow};

/// An engine with named clients and a simulated clock.
pub(crate) struct Stage {
    /// The engine, for tests beyond conversations.
    pub(crate) engine: Engine,
    clients: BTreeMap<String, ClientId>,
    received: BTreeMap<ClientId, BytesMut>,
    lease_us: i64,
    wall_us: i64,
}

/// The initial time of the clock.
const BEGIN: Millis = Millis(1_700_000_000_000);

/// Holds a conversation with a new engine.
pub(crate) fn check(conversation: &str) {
    Stage::new(Settings::default()).check(conversation);
}

/// Runs commands on a new engine and checks the keyspace events of each of them, in the notation
/// `new k, set k`.
pub(crate) fn check_events(commands: &[(&str, &str)]) {
    let events = Events::KEYEVENT | Events::ALL | Events::NEW | Events::KEY_MISS;
    let mut settings = Settings::default();
    settings.notify_keyspace_events = events;
    let mut stage = Stage::new(settings);
    let listener = stage.client("listener");
    stage.engine.sessions.subscribe(listener, Subscription::Pattern, b"__keyevent@0__:*");
    for (command, expected) in commands {
        stage.step(command);
        stage.collect();
        let bytes = stage.received.remove(&listener).unwrap_or_default();
        let events: Vec<String> = replies(&bytes).iter().map(event_and_key).collect();
        assert_eq!(events.join(", "), *expected, "after `{command}`");
    }
}

/// The event and key in a `pmessage`.
fn event_and_key(message: &Reply) -> String {
    let Reply::Array(parts) = message else { panic!("not a message: {message:?}") };
    let [_, _, Reply::Bulk(channel), Reply::Bulk(key)] = &parts[..] else {
        panic!("not a message: {message:?}")
    };
    let channel = String::from_utf8_lossy(channel);
    let event = channel.split_once(':').map_or("", |(_, event)| event);
    format!("{event} {}", String::from_utf8_lossy(key))
}

impl Stage {
    /// A new engine, whose effects are verified.
    pub(crate) fn new(mut settings: Settings) -> Stage {
        settings.verify_effects = true;
        let engine = Engine::new(settings, Process::default(), Time::at(BEGIN), [1, 2, 3, 4]);
        let begin_us = BEGIN.0 * 1000;
        Stage {
            engine,
            clients: BTreeMap::new(),
            received: BTreeMap::new(),
            lease_us: begin_us,
            wall_us: begin_us,
        }
    }

    /// Holds a conversation; panics if a result is not as expected.
    pub(crate) fn check(&mut self, conversation: &str) {
        let steps = split_outside_quotes(conversation, ';');
        for step in steps.into_iter().filter(|step| !step.trim().is_empty()) {
            let (step, expected) = match step.split_once("=>") {
                Some((step, expected)) => (step.trim(), Some(expected.trim())),
                None => (step.trim(), None),
            };
            let (got, expected) = (self.step(step), expected.unwrap_or("..."));
            let holds = matches(&got, expected);
            assert!(holds, "{got} is not {expected} at `{step}` of `{conversation}`");
        }
    }

    /// Runs one step; returns the replies in the notation of conversations.
    pub(crate) fn step(&mut self, step: &str) -> String {
        render_all(&self.answers(step))
    }

    /// Runs one step; returns the replies.
    pub(crate) fn answers(&mut self, step: &str) -> Vec<Reply> {
        if let Some(span) = step.strip_prefix("wall") {
            self.wall_us += span_us(span).expect("a span of time");
            return Vec::new();
        }
        if let Some(span_us) = step.starts_with('+').then(|| span_us(step)).flatten() {
            self.advance(span_us);
            return Vec::new();
        }
        if let Some(name) = step.strip_suffix('<') {
            let client = self.client(name);
            self.collect();
            return replies(&self.received.remove(&client).unwrap_or_default());
        }
        if let Some(name) = step.strip_suffix('!').filter(|name| name.len() == 1) {
            let (client, time) = (self.client(name), self.time());
            self.engine.disconnect(client);
            self.engine.serve_waiters(time, |_| false);
            return Vec::new();
        }
        let (name, command) = match step.split_once("> ") {
            Some((name, command)) if name.len() == 1 => (name, command),
            _ => ("a", step),
        };
        let client = self.client(name);
        let argv = words(command);
        loop {
            let (replies, flow) = self.request(client, &argv);
            if flow != Flow::Again || !self.read_files() {
                return replies;
            }
        }
    }

    /// Reads the files that requests need; returns whether there are such requests.
    pub(crate) fn read_files(&mut self) -> bool {
        let has_read = self.engine.has_file_reads();
        while let Some(read) = self.engine.next_file_read() {
            self.engine.end_file_read(read.run());
        }
        has_read
    }

    /// Advances both clocks and processes everything that is due then.
    pub(crate) fn advance(&mut self, span_us: i64) {
        self.lease_us += span_us;
        self.wall_us += span_us;
        let time = self.time();
        while self.engine.next_deadline().is_some_and(|deadline| time.reached(deadline)) {
            self.tick(1_000);
        }
    }

    /// Processes what is due now, in at most `budget` steps.
    pub(crate) fn tick(&mut self, budget: u32) {
        let time = self.time();
        self.engine.tick(time, budget);
        self.engine.serve_waiters(time, |_| false);
    }

    /// The present time.
    pub(crate) fn time(&self) -> Time {
        Time::from_micros(self.lease_us, self.wall_us)
    }

    /// Sets the nodes that clients are shown.
    pub(crate) fn set_nodes(&mut self, nodes: Nodes) {
        self.engine.set_nodes(nodes, self.time());
    }

    /// Runs one request; returns its reply in the notation of conversations, and the next step.
    pub(crate) fn run(&mut self, client: ClientId, argv: &[Vec<u8>]) -> (String, Flow) {
        let (replies, flow) = self.request(client, argv);
        (render_all(&replies), flow)
    }

    /// Checks that the command of the client of this name is held; returns the client.
    #[track_caller]
    pub(crate) fn hold(&mut self, name: &str, command: &str) -> ClientId {
        let client = self.client(name);
        let held = (String::new(), Flow::Again);
        assert_eq!(self.run(client, &words(command)), held, "{command}");
        client
    }

    /// The clients that are to run their requests again.
    pub(crate) fn resumed(&mut self) -> Vec<ClientId> {
        let deliveries = self.engine.deliveries();
        deliveries.into_iter().filter(|it| it.resume).map(|it| it.client).collect()
    }

    fn request(&mut self, client: ClientId, argv: &[Vec<u8>]) -> (Vec<Reply>, Flow) {
        let argv: Vec<&[u8]> = argv.iter().map(|argument| &**argument).collect();
        let mut out = BytesMut::new();
        let time = self.time();
        let flow = self.engine.run(time, client, &argv, &mut out);
        self.engine.end_request(time, client, &mut out, |_| false);
        (replies(&out), flow)
    }

    /// The client of that name; connects it on first use.
    pub(crate) fn client(&mut self, name: &str) -> ClientId {
        if let Some(&client) = self.clients.get(name) {
            return client;
        }
        let time = self.time();
        let client = self.engine.connect(Origin::default(), time);
        self.clients.insert(name.to_owned(), client);
        client
    }

    fn collect(&mut self) {
        for delivery in self.engine.deliveries() {
            self.received.entry(delivery.client).or_default().extend_from_slice(&delivery.bytes);
        }
    }
}

/// Whether a result is as expected, where `...` matches any text, but no error.
pub(crate) fn matches(got: &str, expected: &str) -> bool {
    if got.starts_with('!') != expected.starts_with('!') {
        return false;
    }
    let parts: Vec<&str> = expected.split("...").collect();
    let [first, middle @ .., last] = parts.as_slice() else { return got == expected };
    let Some(mut rest) = got.strip_prefix(first) else { return false };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Reads `+10ms` or `-1us`.
fn span_us(text: &str) -> Option<i64> {
    match text.strip_suffix("ms") {
        Some(millis) => millis.parse::<i64>().ok()?.checked_mul(1000),
        None => text.strip_suffix("us")?.parse().ok(),
    }
}

/// Several replies in the notation of conversations, separated by `&`.
pub(crate) fn render_all(replies: &[Reply]) -> String {
    replies.iter().map(render).collect::<Vec<_>>().join(" & ")
}

/// Decodes the replies that a client has received.
pub(crate) fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some((reply, used)) = decode(bytes).expect("well-formed replies") {
        replies.push(reply);
        bytes = &bytes[used..];
    }
    replies
}

/// A reply in the notation of conversations.
pub(crate) fn render(reply: &Reply) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let list = |items: &[Reply]| items.iter().map(render).collect::<Vec<_>>().join(", ");
    match reply {
        Reply::Simple(line) => text(line),
        Reply::Error(line) => format!("!{}", text(line)),
        Reply::Integer(value) => value.to_string(),
        Reply::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Reply::Null => "nil".to_owned(),
        Reply::NullArray => "nil-array".to_owned(),
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(k, v)| format!("{}: {}", render(k), render(v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Reply::Double(value) => lockwheel_resp::format_double(*value).as_str().to_owned(),
        Reply::Boolean(yes) => if *yes { "#t" } else { "#f" }.to_owned(),
        Reply::BigNumber(digits) => format!("({}", text(digits)),
        Reply::Verbatim { text: t, .. } => format!("={}", text(t)),
        Reply::Several(replies) => replies.iter().map(render).collect::<Vec<_>>().join(" & "),
    }
}

/// The parts between separators that are not in quotes.
pub(crate) fn split_outside_quotes(line: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&line[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&line[start..]);
    parts
}

/// The words of a command; `"..."` is one word, with `\xHH` escapes.
pub(crate) fn words(command: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = quoted.split_once('"').expect("a closing quote");
            words.push(unescape(word));
            rest = after.trim_start();
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            words.push(word.as_bytes().to_vec());
            rest = after.trim_start();
        }
    }
    words
}

fn unescape(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).expect("two hex digits"));
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}
