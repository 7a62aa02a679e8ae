//! Tables of commands sent to Lockwheel and to a real server, whose replies must be the same.
//!
//! A table holds one command per line and no replies: the real server gives those. `b> words`
//! speaks on connection `b` (default `a`); `b<` reads one more reply there (a message, or the
//! second answer of `SUBSCRIBE x y`). A line may begin with marks:
//!
//! | Mark | Meaning |
//! |---|---|
//! | `~sorted` | arrays, sets and maps are unordered here |
//! | `~near` | remaining and idle times agree within what has passed between the servers' turns |
//! | `~shape` | only the types agree: ids, times, addresses |
//! | `~names` | of pairs only the first of each agree: maps of facts |
//! | `~code` | of an error only the first word agrees |
//! | `~7.2` | what 7.2 says and 7.0 does not: sent, and not compared with an older server |
//! | `~valkey-8.1` | what Valkey says since then: sent, and compared with no other server |
//! | `~plain` | not inside `MULTI` or a script |
//! | `~mute` | no reply is read |
//! | `~waits` | nor is there one yet: the next line is sent when this client waits |
//!
//! `HELP` texts are in no table: ours are our own.
//!
//! Each table runs in every protocol version and [`Mode`]. A table whose first line is
//! `# plain only` runs in one mode: it holds conversations of its own. A table whose first line
//! ends with `cluster` or `sentinel` runs on servers of that [`Kind`].

use std::collections::BTreeMap;

use lockwheel_compat::time;

use crate::frame::Frame;
use crate::target::{Kind, Release, Target};
use crate::wire::Wire;
use crate::{frame_of, words};

/// How the commands of a table reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As they stand.
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

/// A table and its name in messages.
pub struct Table<'a> {
    /// The file it comes from.
    pub name: &'a str,
    /// Its lines.
    pub text: &'a str,
}

/// What differed in a run, one entry per line; empty when both servers agree.
pub type Differences = Vec<String>;

impl Table<'_> {
    /// The modes this table is meant for.
    pub fn modes(&self) -> &'static [Mode] {
        if self.text.starts_with("# plain only") { &MODES[..1] } else { &MODES }
    }

    /// The kind of servers this table is meant for.
    pub fn kind(&self) -> Kind {
        let first = self.text.lines().next().unwrap_or_default();
        match first.strip_prefix('#').and_then(|line| line.split_whitespace().last()) {
            Some("cluster") => Kind::Cluster,
            Some("sentinel") => Kind::Sentinel,
            _ => Kind::Standalone,
        }
    }

    /// Runs the table once on both servers, both emptied before.
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
            let excused = line.since.is_some_and(|since| !version.has(since));
            if !excused && !line.agree(&ours, &oracle, passed) {
                let place = format!("{}:{} RESP{protocol} {mode:?}", self.name, index + 1);
                let (ours_shown, oracle_shown) = (show(&ours), show(&oracle));
                differences.push(format!("{place}: {text}\n  {ours_shown}\n  {oracle_shown}"));
                if ours.is_err() {
                    break; // Nothing that follows could be in step.
                }
            }
        }
        differences
    }
}

/// What has passed on the way to a line.
#[derive(Clone, Copy)]
struct Passed {
    /// The longest time from when a line was sent to the first server until both had replied.
    longest_us: i64,
    /// The time since the table was begun.
    all_us: i64,
}

/// Until then no lease of whole seconds has lost half a second, by which `TTL` rounds.
const HALF_A_SECOND_US: i64 = 450_000;

impl Passed {
    /// How far apart the two servers may be about a time that a command tells, in the command's
    /// unit. What is asked about happened on both within one `longest_us`, and so did the
    /// question; and both moments are rounded.
    fn apart(self, command: &[u8]) -> i64 {
        let apart_ms = 2 * (self.longest_us / 1000 + 1) + 1;
        match command.to_ascii_uppercase().as_slice() {
            b"TTL" if self.all_us < HALF_A_SECOND_US => 0,
            b"TTL" | b"EXPIRETIME" => apart_ms / 1000 + 1,
            // OBJECT IDLETIME counts the seconds of a clock that counts seconds.
            b"OBJECT" => apart_ms / 1000 + 2,
            _ => apart_ms,
        }
    }
}

/// A reply, or why there was none.
type Heard = Result<Vec<Frame>, String>;

fn show(heard: &Heard) -> String {
    match heard {
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

    fn agree(&self, ours: &Heard, oracle: &Heard, passed: Passed) -> bool {
        let (Ok(ours), Ok(oracle)) = (ours, oracle) else { return false };
        let command = self.words.first().map_or(&b""[..], |word| word);
        // Every TTL changes as time passes.
        let tells_time = self.near || command.eq_ignore_ascii_case(b"TTL");
        let apart = tells_time.then(|| passed.apart(command));
        let (ours, oracle) = (self.normal(ours), self.normal(oracle));
        ours.len() == oracle.len()
            && ours.iter().zip(&oracle).all(|(a, b)| alike(a, b, apart, true))
    }

    /// The replies with what may differ taken out.
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

/// Whether two replies are the same, but for times that are no farther apart than `apart`. A time
/// is a whole reply, stands behind a name in what is told of a consumer, or in an entry of
/// XPENDING.
fn alike(ours: &Frame, oracle: &Frame, apart: Option<i64>, is_time: bool) -> bool {
    const NAMES: [&[u8]; 2] = [b"idle", b"inactive"];
    let is_near = || apart.is_some_and(|apart| is_time && are_near(ours, oracle, apart));
    let items = &oracle.items;
    let tells_time = |at: usize| {
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
            .all(|(at, (a, b))| alike(a, b, apart, tells_time(at)))
}

/// Whether two integers are no farther apart than `apart`. What is negative is no time.
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
    fn play(&mut self, line: &Line) -> Heard {
        let (target, protocol, mode) = (self.target, self.protocol, self.mode);
        let open = || target.connect(protocol);
        let wire = self.wires.entry(line.client.clone()).or_insert_with(open);
        if line.waits {
            return Ok(send_and_see_it_wait(wire, &line.words, target));
        }
        let mut replies = usize::from(!line.mute);
        if !line.words.is_empty() {
            replies *=
                say(wire, &line.words, if line.plain { Mode::Plain } else { mode }, protocol);
        }
        let read = |_| wire.try_read().map(|bytes| frame_of(&bytes));
        let heard = (0..replies).map(read).collect::<Result<_, _>>();
        heard.map_err(|error| format!("nothing was heard: {error}"))
    }
}

/// How often to look whether a command waits that was sent before the first look.
const LOOKS_MAX: usize = 1_000;

/// Sends a command that has nothing to answer yet. What others send from here on comes later.
fn send_and_see_it_wait(wire: &mut Wire, words: &[Vec<u8>], target: &Target) -> Vec<Frame> {
    let mut control = target.connect(2);
    let mut waiting = || {
        let info = String::from_utf8(control.call(&["INFO", "clients"])).expect("text");
        let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.expect("INFO counts those who wait").parse::<u32>().expect("a number")
    };
    let before = waiting();
    wire.send(words);
    let waits = (0..LOOKS_MAX).any(|_| waiting() > before);
    assert!(waits, "{} does not wait: {words:?}", target.name());
    Vec::new()
}

/// Sends the words the way `mode` says; returns how many replies that makes.
fn say(wire: &mut Wire, words: &[Vec<u8>], mode: Mode, protocol: u8) -> usize {
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
        let heard = |text: &str| Ok(vec![frame_of(text.replace('|', "\r\n").as_bytes())]);
        let line = Line::parse(line).expect("a line");
        line.agree(&heard(ours), &heard(oracle), passed)
    }

    #[test]
    fn times_may_differ_by_what_has_passed_and_not_by_more() {
        // 10 ms each way, and one for each rounding.
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
