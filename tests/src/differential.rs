//! Tables of commands that are sent to Lockwheel and to a real server: both must reply the same.
//!
//! A table has one command per line and no replies: the real server gives those. `b> words`
//! sends a command on connection `b` (default `a`); `b<` reads one more reply there (a message,
//! or the second reply to `SUBSCRIBE x y`). A line may begin with marks:
//!
//! | Mark | Meaning |
//! |---|---|
//! | `~sorted` | the order of elements of arrays, sets and maps is not compared |
//! | `~near` | times may differ by the time between the requests to the two servers |
//! | `~shape` | only types are compared, not values: ids, times, addresses |
//! | `~names` | only the first item of each pair is compared, not its value |
//! | `~code` | only the first word of an error is compared |
//! | `~7.2` | the reply is compared only if the server is version 7.2 or later |
//! | `~valkey-8.1` | the reply is compared only if the server is Valkey 8.1 or later |
//! | `~plain` | not sent inside `MULTI` or a script |
//! | `~mute` | no reply is read |
//! | `~waits` | the client blocks: no reply is read; the next line is sent when it is blocked |
//!
//! `HELP` texts are in no table, since ours differ from Redis's.
//!
//! Each table runs in every protocol version and [`Mode`]. A table with the first line
//! `# plain only` runs only in [`Mode::Plain`]. A table with a first line that ends with `cluster`
//! or `sentinel` runs on servers of that [`Kind`].

use std::collections::BTreeMap;

use lockwheel_compat::time;

use crate::frame::Frame;
use crate::target::{Kind, Release, Target};
use crate::wire::Wire;
use crate::{frame_of, words};

/// How the commands of a table reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Unchanged.
    Plain,
    /// Each in a transaction of its own.
    Multi,
    /// Each by `redis.call` in a script.
    Call,
    /// Each by `redis.pcall`.
    Pcall,
}

/// Every mode.
pub const MODES: [Mode; 4] = [Mode::Plain, Mode::Multi, Mode::Call, Mode::Pcall];

/// A table of commands.
pub struct Table<'a> {
    /// The name of its file, for messages.
    pub name: &'a str,
    /// Its lines.
    pub text: &'a str,
}

/// The lines of a table with different replies; empty if both servers reply the same.
pub type Differences = Vec<String>;

impl Table<'_> {
    /// The modes in which this table runs.
    pub fn modes(&self) -> &'static [Mode] {
        if self.text.starts_with("# plain only") { &MODES[..1] } else { &MODES }
    }

    /// The kind of servers on which this table runs.
    pub fn kind(&self) -> Kind {
        let first = self.text.lines().next().unwrap_or_default();
        match first.strip_prefix('#').and_then(|line| line.split_whitespace().last()) {
            Some("cluster") => Kind::Cluster,
            Some("sentinel") => Kind::Sentinel,
            _ => Kind::Standalone,
        }
    }

    /// Empties both servers and runs the table once on both.
    pub fn compare(&self, ours: &Target, oracle: &Target, protocol: u8, mode: Mode) -> Differences {
        let mut sides = [ours, oracle].map(|target| {
            for reset in ["FLUSHALL", "SCRIPT FLUSH", "CONFIG RESETSTAT"] {
                target.run(reset);
            }
            Side { target, protocol, mode, wires: BTreeMap::new() }
        });
        let version = oracle.version();
        let mut differences = Vec::new();
        let begin_us = time::now_us();
        let mut longest_us = 0;
        for (index, text) in self.text.lines().enumerate() {
            let Some(line) = Line::parse(text) else { continue };
            if line.plain && mode != Mode::Plain {
                continue;
            }
            let asked_us = time::now_us();
            let [ours, oracle] = sides.each_mut().map(|side| side.play(&line));
            let now_us = time::now_us();
            longest_us = now_us.saturating_sub(asked_us).max(longest_us);
            let passed = Passed { longest_us, all_us: now_us - begin_us };
            let is_unsupported = line.since.is_some_and(|since| !version.has(since));
            if !is_unsupported && !line.agree(&ours, &oracle, passed) {
                let place = format!("{}:{} RESP{protocol} {mode:?}", self.name, index + 1);
                let (ours_shown, oracle_shown) = (show(&ours), show(&oracle));
                differences.push(format!("{place}: {text}\n  {ours_shown}\n  {oracle_shown}"));
                if ours.is_err() {
                    break; // Later replies would be assigned to the wrong lines.
                }
            }
        }
        differences
    }
}

/// The time that has passed before a line is compared.
#[derive(Clone, Copy)]
struct Passed {
    /// The longest time between sending a line to the first server and the replies of both.
    longest_us: i64,
    /// The time since the start of the table.
    all_us: i64,
}

/// Shortest time after which a lease of whole seconds can have lost the half second at which `TTL`
/// rounds.
const HALF_A_SECOND_US: i64 = 450_000;

impl Passed {
    /// The permitted difference of a time in the replies of the two servers, in the command's unit.
    /// The event and the request each happened on both servers within one `longest_us`, and both
    /// times are rounded.
    fn apart(self, command: &[u8]) -> i64 {
        let apart_ms = 2 * (self.longest_us / 1000 + 1) + 1;
        match command.to_ascii_uppercase().as_slice() {
            b"TTL" if self.all_us < HALF_A_SECOND_US => 0,
            b"TTL" | b"EXPIRETIME" => apart_ms / 1000 + 1,
            // OBJECT IDLETIME subtracts two times that are both rounded to seconds.
            b"OBJECT" => apart_ms / 1000 + 2,
            _ => apart_ms,
        }
    }
}

/// The replies to a line, or the reason why there are none.
type Replies = Result<Vec<Frame>, String>;

fn show(replies: &Replies) -> String {
    match replies {
        Ok(frames) => frames.iter().map(Frame::to_string).collect::<Vec<_>>().join(" "),
        Err(problem) => problem.clone(),
    }
}

#[derive(Default)]
struct Line {
    client: String,
    words: Vec<Vec<u8>>,
    sorted: bool,
    near: bool,
    shape: bool,
    names: bool,
    code: bool,
    since: Option<Release>,
    plain: bool,
    mute: bool,
    waits: bool,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let mut rest = text.trim();
        if rest.is_empty() || rest.starts_with('#') {
            return None;
        }
        let mut line = Line { client: "a".to_owned(), ..Line::default() };
        while let Some(marked) = rest.strip_prefix('~') {
            let (mark, after) = marked.split_once(' ').unwrap_or((marked, ""));
            line.mark(mark);
            rest = after.trim_start();
        }
        let name = rest.find(['>', '<']).map(|end| &rest[..=end]);
        if let Some(name) = name.filter(|name| !name.contains(' ') && name.len() <= 2) {
            rest = &rest[name.len()..];
            line.plain = true;
            if name.len() == 2 {
                line.client = name[..1].to_owned();
            }
        }
        line.words = words(rest);
        Some(line)
    }

    fn mark(&mut self, mark: &str) {
        let flag = match mark {
            "sorted" => &mut self.sorted,
            "near" => &mut self.near,
            "shape" => &mut self.shape,
            "names" => &mut self.names,
            "code" => &mut self.code,
            "plain" => &mut self.plain,
            "mute" => &mut self.mute,
            "waits" => &mut self.waits,
            release => {
                let release = Release::parse(release);
                self.since = Some(release.unwrap_or_else(|| panic!("no such mark: ~{mark}")));
                return;
            }
        };
        *flag = true;
    }

    fn agree(&self, ours: &Replies, oracle: &Replies, passed: Passed) -> bool {
        let (Ok(ours), Ok(oracle)) = (ours, oracle) else { return false };
        let command = self.words.first().map_or(&b""[..], |word| word);
        // Every TTL changes as time passes.
        let is_time = self.near || command.eq_ignore_ascii_case(b"TTL");
        let apart = is_time.then(|| passed.apart(command));
        let (ours, oracle) = (self.normal(ours), self.normal(oracle));
        ours.len() == oracle.len()
            && ours.iter().zip(&oracle).all(|(a, b)| alike(a, b, apart, true))
    }

    /// The replies without the parts that may differ.
    fn normal(&self, frames: &[Frame]) -> Vec<Frame> {
        let mut frames = frames.to_vec();
        for frame in &mut frames {
            frame.walk(&mut |frame| self.simplify(frame));
        }
        frames
    }

    fn simplify(&self, frame: &mut Frame) {
        if self.sorted && frame.kind == b'%' {
            let mut pairs: Vec<_> = frame.items.chunks(2).map(<[Frame]>::to_vec).collect();
            pairs.sort();
            frame.items = pairs.concat();
        } else if self.sorted {
            frame.items.sort();
        }
        if self.names {
            let values = frame.items.iter_mut().skip(1).step_by(2);
            values.filter(|item| item.items.is_empty()).for_each(|item| item.text.clear());
        }
        if self.code && frame.kind == b'-' {
            let end = frame.text.iter().position(|&byte| byte == b' ').unwrap_or(frame.text.len());
            frame.text.truncate(end);
        }
        if self.shape && !frame.missing && !matches!(frame.kind, b'+' | b'-') {
            frame.text = b"...".to_vec();
        }
    }
}

/// Whether two replies are equal, apart from times that differ by at most `apart`. A time is a
/// whole reply, the value of a named field of a consumer, or an item of an entry of XPENDING.
fn alike(ours: &Frame, oracle: &Frame, apart: Option<i64>, is_time: bool) -> bool {
    const NAMES: [&[u8]; 2] = [b"idle", b"inactive"];
    let is_near = || apart.is_some_and(|apart| is_time && are_near(ours, oracle, apart));
    let items = &oracle.items;
    let is_time_at = |at: usize| {
        is_time && items.len() == 1
            || items.len() == 4 && at == 2 && items[0].text.contains(&b'-')
            || at > 0 && NAMES.contains(&&*items[at - 1].text)
    };
    ours.kind == oracle.kind
        && (ours.text == oracle.text || is_near())
        && ours.items.len() == items.len()
        && ours
            .items
            .iter()
            .zip(items)
            .enumerate()
            .all(|(at, (a, b))| alike(a, b, apart, is_time_at(at)))
}

/// Whether two integers differ by at most `apart`. Negative integers are not times.
fn are_near(ours: &Frame, oracle: &Frame, apart: i64) -> bool {
    let number = |frame: &Frame| {
        let text = std::str::from_utf8(&frame.text).ok()?;
        text.parse::<i64>().ok().filter(|&number| frame.kind == b':' && number >= 0)
    };
    match (number(ours), number(oracle)) {
        (Some(ours), Some(oracle)) => ours.abs_diff(oracle) <= apart.unsigned_abs(),
        _ => false,
    }
}

/// One server and its connections during a run.
struct Side<'a> {
    target: &'a Target,
    protocol: u8,
    mode: Mode,
    wires: BTreeMap<String, Wire>,
}

impl Side<'_> {
    fn play(&mut self, line: &Line) -> Replies {
        let (target, protocol, mode) = (self.target, self.protocol, self.mode);
        let open = || target.connect(protocol);
        let wire = self.wires.entry(line.client.clone()).or_insert_with(open);
        if line.waits {
            return Ok(send_and_await_blocking(wire, &line.words, target));
        }
        let mut count = usize::from(!line.mute);
        if !line.words.is_empty() {
            let mode = if line.plain { Mode::Plain } else { mode };
            count *= send(wire, &line.words, mode, protocol);
        }
        let read = |_| wire.try_read().map(|bytes| frame_of(&bytes));
        let replies = (0..count).map(read).collect::<Result<_, _>>();
        replies.map_err(|error| format!("no reply: {error}"))
    }
}

/// The number of checks whether a command blocks that was sent before the first check.
const CHECKS_MAX: usize = 1_000;

/// Sends a command that blocks its client, and returns when the server counts it as blocked: later
/// requests of other clients run after it.
fn send_and_await_blocking(wire: &mut Wire, words: &[Vec<u8>], target: &Target) -> Vec<Frame> {
    let mut control = target.connect(2);
    let mut blocked_clients = || {
        let info = String::from_utf8(control.call(&["INFO", "clients"])).expect("text");
        let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.expect("INFO counts blocked clients").parse::<u32>().expect("a number")
    };
    let before = blocked_clients();
    wire.send(words);
    let blocks = (0..CHECKS_MAX).any(|_| blocked_clients() > before);
    assert!(blocks, "{} does not block: {words:?}", target.name());
    Vec::new()
}

/// Sends a command in the given mode; returns the number of replies to it.
fn send(wire: &mut Wire, words: &[Vec<u8>], mode: Mode, protocol: u8) -> usize {
    let scripted = |function: &str| {
        let script = format!("redis.setresp({protocol}) return redis.{function}(unpack(ARGV))");
        let head = ["EVAL".into(), script.into_bytes(), "0".into()];
        head.into_iter().chain(words.iter().cloned()).collect::<Vec<Vec<u8>>>()
    };
    match mode {
        Mode::Plain => wire.send(words),
        Mode::Call => wire.send(&scripted("call")),
        Mode::Pcall => wire.send(&scripted("pcall")),
        Mode::Multi => {
            wire.send(&["MULTI"]);
            wire.send(words);
            wire.send(&["EXEC"]);
            return 3;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::{Line, Passed};
    use crate::frame_of;

    fn agree(line: &str, ours: &str, oracle: &str, passed: Passed) -> bool {
        let replies = |text: &str| Ok(vec![frame_of(text.replace('|', "\r\n").as_bytes())]);
        let line = Line::parse(line).expect("a line");
        line.agree(&replies(ours), &replies(oracle), passed)
    }

    #[test]
    fn times_may_differ_by_the_time_that_has_passed_only() {
        // 10 ms in each direction, and 1 ms for each rounding.
        let passed = Passed { longest_us: 10_000, all_us: 20_000 };
        assert!(agree("~near PTTL k", ":100000|", ":99977|", passed));
        assert!(agree("~near PTTL k", ":99977|", ":100000|", passed));
        assert!(!agree("~near PTTL k", ":100000|", ":99976|", passed));
        assert!(!agree("~near PTTL k", ":-1|", ":1|", passed));
        assert!(!agree("PTTL k", ":100000|", ":99999|", passed));
        assert!(!agree("~near PTTL k", "$1|5|", "$1|4|", passed));
        assert!(agree("~near PTTL k", "*1|:100000|", "*1|:99999|", passed));
        let entry = |idle: i64, times: i64| format!("*1|*4|$3|1-1|$1|c|:{idle}|:{times}|");
        assert!(agree("~near XPENDING s g - + 9", &entry(0, 1), &entry(23, 1), passed));
        assert!(!agree("~near XPENDING s g - + 9", &entry(0, 1), &entry(24, 1), passed));
        assert!(!agree("~near XPENDING s g - + 9", &entry(0, 1), &entry(0, 2), passed));
        let row = |pending: i64, idle: i64| format!("*1|*4|$7|pending|:{pending}|$4|idle|:{idle}|");
        assert!(agree("~near XINFO CONSUMERS s g", &row(1, 5), &row(1, 6), passed));
        assert!(!agree("~near XINFO CONSUMERS s g", &row(1, 5), &row(2, 5), passed));
    }

    #[test]
    fn seconds_may_differ_once_half_a_second_has_passed() {
        let soon = Passed { longest_us: 10_000, all_us: 449_999 };
        let late = Passed { longest_us: 10_000, all_us: 450_000 };
        assert!(agree("TTL k", ":100|", ":100|", soon));
        assert!(!agree("TTL k", ":99|", ":100|", soon));
        assert!(agree("TTL k", ":99|", ":100|", late));
        assert!(!agree("TTL k", ":98|", ":100|", late));
        assert!(!agree("TTL k", ":-1|", ":0|", late));
        assert!(!agree("TTL k", ":-2|", ":-1|", late));
    }
}
