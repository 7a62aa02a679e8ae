//! Compares logs with a real `redis-server`: a server with a log runs random commands and ends, or
//! is killed; the program exports the log, and the other server loads it. All keys, values,
//! deadlines and function libraries must be those that clients saw before the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockwheel_compat::fuzz::arguments::{self, Commands};
use lockwheel_compat::fuzz::episode::Episode;
use lockwheel_compat::fuzz::generate;
use lockwheel_compat::fuzz::grammar::Grammar;
use lockwheel_compat::fuzz::side::expand;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_compat::wire::request;

use crate::daemon::{self, Daemon, Folder};
use crate::frame_of;
use crate::redis_server::RedisServer;
use crate::wire::Wire;
use crate::words;

/// Databases of both servers.
const DATABASES: usize = 16;
/// Number of episodes of which one has random arguments, and may flush all databases.
const ARGUMENTS_ONE_IN: u64 = 4;
/// How long a client waits for a reply before it counts as blocked.
const REPLY_TIMEOUT: Duration = Duration::from_millis(3);
/// Shortest remaining lease of the keys that are compared: others may be gone when the other server
/// has loaded the file.
const SHORT_LEASE_MS: i64 = 60_000;
/// How much later a deadline may be after a restart or on the other server, in milliseconds: the
/// clocks are not read at the same moment.
const LATE_MS: i64 = 50;
/// Milliseconds by which a deadline is rounded when it is shown.
const ROUNDING_MS: i64 = 1;

/// What random commands do seldom. A number follows each name.
const UNUSUAL: &[&str] = &[
    "FUNCTION LOAD REPLACE \"#!lua name=lib#\\nredis.register_function('f#', function() end)\"",
    "EVAL \"for i=1,300 do redis.call('rpush',KEYS[1],i) redis.call('sadd',KEYS[2],'m'..i)\
     redis.call('sadd',KEYS[3],i) redis.call('zadd',KEYS[4],i/7,i) \
     redis.call('hset',KEYS[5],i,'v'..i) redis.call('xadd',KEYS[6],i..'-1','f',i) end\" \
     6 long:list# long:set# long:integers# long:zset# long:hash# long:stream#",
    "SET \"\\xff\\x00\\r\\n#\" \"\\x80\\x00 \\\"\"",
    "SET empty# \"\" PX 100000000",
    "SETRANGE zeros# 3000 x",
    "ZADD scores# inf a -inf b 1e300 c 3.0000000000000004 d -0 e 5e-324 f",
    "HSET leased# f v",
    "PEXPIREAT leased# 9999999999999",
    "XADD deleted# 1-1 f 1",
    "XADD deleted# 2-1 f 2",
    "XADD deleted# 3-1 f 3",
    "XADD deleted# 4-1 f 4",
    "XGROUP CREATE deleted# g 0",
    "XGROUP CREATE deleted# idle $",
    "XGROUP CREATECONSUMER deleted# g c2",
    "XREADGROUP GROUP g c COUNT 4 STREAMS deleted# >",
    "XREADGROUP GROUP g c2 STREAMS deleted# 0",
    "XCLAIM deleted# g c2 0 4-1 RETRYCOUNT 7 TIME 1000",
    "XDEL deleted# 3-1",
    "XTRIM deleted# MINID 2",
    "COPY deleted# cut#",
    "XTRIM cut# MAXLEN 0",
    "XADD lowered# 5-5 f v",
    "XGROUP CREATE lowered# g 0",
    "XREADGROUP GROUP g c STREAMS lowered# >",
    "XTRIM lowered# MAXLEN 0",
    "XSETID lowered# 3-0 ENTRIESADDED 9",
    "XGROUP CREATE made# g 0 MKSTREAM",
    "XADD none# MAXLEN 0 7-7 f v",
    "XSETID none# 9-0 ENTRIESADDED 5 MAXDELETEDID 8-1",
    "MOVE leased# 3",
    "COPY empty# empty# DB 5",
    "SWAPDB 3 6",
    "EVAL \"redis.call('set',KEYS[1],'1') redis.call('append',KEYS[1],'2')\" 1 appended#",
];

/// A key as a client sees it.
#[derive(Debug, PartialEq)]
struct KeyState {
    kind: String,
    /// -1 if there is none.
    deadline_ms: i64,
    /// The whole value, in the order of its members if it has none of its own.
    value: Vec<Frame>,
}

/// All that the clients of a server can see of its state.
#[derive(Debug, Default)]
struct Observed {
    keys: BTreeMap<(usize, Vec<u8>), KeyState>,
    libraries: BTreeSet<Vec<u8>>,
    /// The wall clock of the server.
    at_ms: i64,
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Commands that were sent.
    pub commands: u64,
    /// Keys on both servers, in all rounds.
    pub keys: usize,
    /// Number of keys with a deadline.
    pub with_deadline: usize,
    /// Streams among them.
    pub streams: usize,
    /// The least and the greatest difference between deadlines, in milliseconds.
    pub apart_ms: Option<(i64, i64)>,
}

/// Sends this many commands, in rounds of `round`, after each of which the log is compared and the
/// server started again. `None` if there is no `redis-server`.
pub fn compare(seed: u64, commands: u64, round: u64) -> Option<Result<Report, String>> {
    let folder = Folder::new();
    let mut run = Run { seed, folder, number: 0, before: None, report: Report::default() };
    while run.report.commands < commands {
        match run.round(round)? {
            Ok(()) => {}
            Err(problem) => return Some(Err(format!("seed {seed}: {problem}"))),
        }
    }
    Some(Ok(run.report))
}

struct Run {
    seed: u64,
    /// Folder that contains the directory of the log.
    folder: Folder,
    /// The number of the next episode.
    number: u64,
    /// The state when the last round ended.
    before: Option<Observed>,
    report: Report,
}

impl Run {
    fn round(&mut self, commands: u64) -> Option<Result<(), String>> {
        let dir = self.folder.path("");
        let words = ["--port", "0", "--appendonly", "yes", "--appendfsync", "everysec", "--dir"];
        let mut server = Daemon::start(&[&words[..], &[&dir]].concat());
        let port = server.wait_for_port();
        let mut control = server.connect(port);
        let begin = self.number;
        if let Some(before) = self.before.take() {
            let restarted = Observed::by(&mut control);
            if let Err(problem) = self.compare_states(&before, &restarted) {
                return Some(Err(format!("after a restart, episode {begin}: {problem}")));
            }
        }
        self.play(&mut control, &server, port, commands);
        let before = Observed::by(&mut control);
        // Clients have seen only what is written.
        let is_killed = self.number.is_multiple_of(2);
        server.signal(if is_killed { "KILL" } else { "TERM" });
        assert_eq!(server.end().success(), !is_killed, "{}", server.log_text);
        let log = self.folder.path("appendonlydir");
        let checked = daemon::run(&["log", "check", &log]);
        let exported = daemon::run(&["log", "export", &log, "--format", "aof"]);
        for output in [&checked, &exported] {
            if !output.status.success() {
                return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
            }
        }
        let oracle = match RedisServer::start_with(&exported.stdout)? {
            Ok(oracle) => oracle,
            Err(problem) => return Some(Err(problem)),
        };
        let loaded = Observed::by(&mut Wire::connect(oracle.address(), 2));
        let result = self.compare_states(&before, &loaded);
        self.before = Some(before);
        let place = |problem| format!("episodes {begin} to {}: {problem}", self.number);
        Some(result.map_err(place))
    }

    fn play(&mut self, control: &mut Wire, server: &Daemon, port: u16, commands: u64) {
        for line in UNUSUAL {
            control.call(&words(&line.replace('#', &self.number.to_string())));
        }
        let docs = frame_of(&control.call(&["COMMAND", "DOCS"]));
        let grammar = Grammar::new(&docs, (u32::MAX, 0), |_| true);
        let table = Commands::in_table(&frame_of(&control.call(&["COMMAND"])));
        let end = self.report.commands + commands;
        let begin = self.number;
        while self.report.commands < end {
            // Those that may flush come first.
            let episode = if (self.number - begin) * 200 * ARGUMENTS_ONE_IN < commands {
                arguments::episode(&table, &grammar, self.seed, self.number)
            } else {
                generate::episode(&grammar, self.seed, self.number)
            };
            let prefix = format!("e{}:", self.number);
            self.report.commands += play_episode(&episode, &prefix, server, port);
            self.number += 1;
            if self.number.is_multiple_of(3) {
                control.call(&["BGREWRITEAOF"]);
            }
        }
        // No other client may change anything any more.
        control.call(&["CLIENT", "KILL", "TYPE", "normal"]);
        control.call(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        for line in UNUSUAL {
            control.call(&words(&line.replace('#', &self.number.to_string())));
        }
    }

    /// Compares what clients have seen with what they see later.
    fn compare_states(&mut self, before: &Observed, after: &Observed) -> Result<(), String> {
        if before.libraries != after.libraries {
            return Err("the function libraries differ".to_owned());
        }
        for (place, key) in &before.keys {
            if key.has_short_lease(before.at_ms) {
                continue;
            }
            let Some(later) = after.keys.get(place) else {
                return Err(format!("{} is missing: {key:?}", shown(place)));
            };
            let apart_ms = later.deadline_ms - key.deadline_ms;
            let has_deadline = (key.deadline_ms >= 0, later.deadline_ms >= 0);
            if has_deadline.0 != has_deadline.1 || !(-ROUNDING_MS..=LATE_MS).contains(&apart_ms) {
                let deadlines = format!("{} and {}", key.deadline_ms, later.deadline_ms);
                return Err(format!("{} has the deadlines {deadlines}", shown(place)));
            }
            if (&key.kind, &key.value) != (&later.kind, &later.value) {
                let values = [&key.value, &later.value].map(|value| notation(value));
                return Err(format!("{} was\n{}\nand is\n{}", shown(place), values[0], values[1]));
            }
            self.count(key, apart_ms);
        }
        let is_known = |place: &(usize, Vec<u8>)| before.keys.contains_key(place);
        match after.keys.keys().find(|place| !is_known(place)) {
            Some(place) => Err(format!("{} was not there", shown(place))),
            None => Ok(()),
        }
    }

    fn count(&mut self, key: &KeyState, apart_ms: i64) {
        self.report.keys += 1;
        self.report.streams += usize::from(key.kind == "stream");
        if key.deadline_ms >= 0 {
            self.report.with_deadline += 1;
            let (least, most) = self.report.apart_ms.unwrap_or((apart_ms, apart_ms));
            self.report.apart_ms = Some((least.min(apart_ms), most.max(apart_ms)));
        }
    }
}

/// A client of the server, which may be blocked.
struct Client {
    stream: TcpStream,
    is_blocked: bool,
}

impl Client {
    /// Waits for a reply, or for a part of one.
    fn wait(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        self.is_blocked = match self.stream.read(&mut buffer) {
            Ok(0) | Err(_) => true,
            Ok(_) => false,
        };
    }
}

/// Sends the commands of an episode; returns their number. Keys begin with `prefix`.
fn play_episode(episode: &Episode, prefix: &str, server: &Daemon, port: u16) -> u64 {
    let mut clients: BTreeMap<char, Client> = BTreeMap::new();
    let mut sent = 0;
    for step in &episode.steps {
        let client = clients.entry(step.client).or_insert_with(|| {
            let stream = TcpStream::connect(("127.0.0.1", port));
            let stream = stream.unwrap_or_else(|error| panic!("{error}: {}", server.log_text));
            stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a time-out");
            Client { stream, is_blocked: false }
        });
        if client.is_blocked {
            client.wait();
        }
        let argv: Vec<_> =
            step.words.iter().map(|word| expand(word, prefix, &BTreeMap::new())).collect();
        let stops_server = argv.first().is_some_and(|name| name.eq_ignore_ascii_case(b"shutdown"));
        if argv.is_empty() || client.is_blocked || stops_server {
            continue;
        }
        // The server may have closed the connection.
        if client.stream.write_all(&request(&argv)).is_err() {
            clients.remove(&step.client);
            continue;
        }
        client.wait();
        sent += 1;
    }
    sent
}

impl Observed {
    fn by(wire: &mut Wire) -> Observed {
        let mut observed = Observed::default();
        let time = frame_of(&wire.call(&["TIME"]));
        observed.at_ms = integer(&time.items[0]) * 1000;
        for database in 0..DATABASES {
            wire.call(&["SELECT", &database.to_string()]);
            for key in frame_of(&wire.call(&["KEYS", "*"])).items {
                if let Some(state) = KeyState::of(wire, &key.text) {
                    observed.keys.insert((database, key.text), state);
                }
            }
        }
        let libraries = frame_of(&wire.call(&["FUNCTION", "LIST", "WITHCODE"])).items;
        let code = |library: &Frame| field(library, "library_code").map(|code| code.text.clone());
        observed.libraries = libraries.iter().filter_map(code).collect();
        observed
    }
}

impl KeyState {
    /// `None` if the key does not exist.
    fn of(wire: &mut Wire, key: &[u8]) -> Option<KeyState> {
        let mut ask = |before: &[&str], after: &[&str]| {
            let words = before.iter().map(|word| word.as_bytes()).chain([key]);
            let words: Vec<&[u8]> = words.chain(after.iter().map(|word| word.as_bytes())).collect();
            frame_of(&wire.call(&words))
        };
        let mut kind = String::from_utf8_lossy(&ask(&["TYPE"], &[]).text).into_owned();
        let deadline_ms = integer(&ask(&["PEXPIRETIME"], &[]));
        let value = match &*kind {
            "string" => vec![ask(&["GET"], &[])],
            "list" => ask(&["LRANGE"], &["0", "-1"]).items,
            "set" => sorted(ask(&["SMEMBERS"], &[]).items),
            "hash" => sorted_pairs(&ask(&["HGETALL"], &[]).items),
            "zset" => with_shortest_scores(ask(&["ZRANGE"], &["0", "-1", "WITHSCORES"]).items),
            "stream" => {
                let entries = ask(&["XRANGE"], &["-", "+"]);
                stream_value(entries, &ask(&["XINFO", "STREAM"], &["FULL", "COUNT", "0"]))
            }
            "lock" => {
                // Redis has no such type: it gets the owner whose lease ends last.
                kind = "string".to_owned();
                vec![last_owner(&ask(&["LOCK.INFO"], &[]))?]
            }
            _ => return None,
        };
        Some(KeyState { kind, deadline_ms, value })
    }

    fn has_short_lease(&self, now_ms: i64) -> bool {
        (0..now_ms + SHORT_LEASE_MS).contains(&self.deadline_ms)
    }
}

/// The owner of a native lock whose lease ends last.
fn last_owner(info: &Frame) -> Option<Frame> {
    let holders = &field(info, "holders")?.items;
    let last = holders.iter().max_by_key(|holder| field(holder, "ttl").map(integer))?;
    field(last, "owner").cloned()
}

/// The parts of a stream that an export contains. The times at which consumers were last active
/// are not among them, as in the files that Redis writes.
fn stream_value(entries: Frame, info: &Frame) -> Vec<Frame> {
    let mut value = vec![entries];
    let totals = ["length", "last-generated-id", "max-deleted-entry-id", "entries-added"];
    value.extend(totals.iter().filter_map(|name| field(info, name).cloned()));
    for group in field(info, "groups").map(|groups| &*groups.items).unwrap_or_default() {
        let parts = ["name", "last-delivered-id", "entries-read", "pel-count", "pel", "pending"];
        value.extend(parts.iter().filter_map(|name| field(group, name).cloned()));
        for consumer in field(group, "consumers").map(|all| &*all.items).unwrap_or_default() {
            let parts = ["name", "pel-count", "pel", "pending"];
            value.extend(parts.iter().filter_map(|name| field(consumer, name).cloned()));
        }
    }
    value
}

/// The value of a field in a map, which RESP2 sends as an array.
fn field<'a>(map: &'a Frame, name: &str) -> Option<&'a Frame> {
    let mut pairs = map.items.chunks_exact(2);
    pairs.find(|pair| pair[0].text == name.as_bytes()).map(|pair| &pair[1])
}

fn sorted(mut items: Vec<Frame>) -> Vec<Frame> {
    items.sort();
    items
}

fn sorted_pairs(items: &[Frame]) -> Vec<Frame> {
    let mut pairs: Vec<&[Frame]> = items.chunks(2).collect();
    pairs.sort();
    pairs.concat()
}

/// Returns items with the shortest form of their scores: before version 7.2, Redis prints scores
/// with 17 digits.
fn with_shortest_scores(mut items: Vec<Frame>) -> Vec<Frame> {
    for score in items.iter_mut().skip(1).step_by(2) {
        let text = String::from_utf8_lossy(&score.text);
        score.text = text.parse::<f64>().expect("a score").to_string().into_bytes();
    }
    items
}

fn integer(frame: &Frame) -> i64 {
    String::from_utf8_lossy(&frame.text).parse().expect("an integer")
}

fn shown((database, key): &(usize, Vec<u8>)) -> String {
    format!("'{}' in database {database}", key.escape_ascii())
}

fn notation(value: &[Frame]) -> String {
    value.iter().map(Frame::notation).collect::<Vec<_>>().join(" ")
}
