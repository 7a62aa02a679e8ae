//! The same scripts on a real `redis-server`: replies and keys are the same, but for what
//! `docs/differences.md` says.

use std::collections::BTreeMap;
use std::time::Instant;

use leasehold_tests::redis_server::RedisServer;
use leasehold_tests::tiers::grammar::{self, Cell, Request, Taste, WORLD};
use leasehold_tests::tiers::pair::{Side, contains};
use leasehold_tests::tiers::trial::shrink;
use leasehold_tests::wire::Wire;
use leasehold_tests::{PROTOCOLS, frame_of};

use crate::{Options, drawn};

/// Scripts that are sent before the first reply is read.
const PIPELINE: usize = 32;
/// Digits of a number that Redis 7.0 writes out where 7.2 and Leasehold write its shortest form.
const LONG_DIGITS: usize = 16;

/// All keys with their values and deadlines. Deadlines are those of the grammar, to the nearest
/// thousand seconds: the clock of a real server goes on.
const KEYS_WITH_VALUES: &str = "local all = {} \
    local keys = redis.call('keys', '*') \
    table.sort(keys) \
    for _, key in ipairs(keys) do \
      local kind = redis.call('type', key).ok \
      local value = 'nothing' \
      if kind == 'string' then value = redis.call('get', key) \
      elseif kind == 'list' then value = redis.call('lrange', key, 0, -1) \
      elseif kind == 'hash' then value = redis.call('hgetall', key) \
      elseif kind == 'zset' then value = redis.call('zrange', key, 0, -1, 'WITHSCORES') \
      elseif kind == 'stream' then value = redis.call('xrange', key, '-', '+') \
      elseif kind == 'set' then value = redis.call('smembers', key) table.sort(value) end \
      all[#all + 1] = {key, kind, value, math.floor((redis.call('pttl', key) + 500000) / 1000000)} \
    end \
    return all";

/// How many differences there are between Leasehold and Redis.
pub(crate) fn compare(options: &Options) -> usize {
    let Some(mut both) = Both::start() else { return 0 };
    let begin = Instant::now();
    let cells: Vec<Cell> = grammar::cells(Taste::Exact).collect();
    let mut counts = Counts::default();
    let mut found = BTreeMap::<String, u64>::new();
    let mut number = options.first;
    let end = options.first + options.sample;
    while number < end && found.len() < options.differences {
        let all: Vec<_> = (number..end.min(number + PIPELINE as u64))
            .map(|number| (number, drawn(options.seed, number, Taste::Exact, &cells)))
            .collect();
        number += PIPELINE as u64;
        // Ours first: what has no end, or needs more memory than there is, is kept from Redis.
        let mut sent = Vec::new();
        for (number, (script, request, protocol)) in all {
            let Some(ours) = both.ours(&script.text, &request, protocol) else {
                counts.kept += 1;
                continue;
            };
            both.send(&script.text, &request, protocol);
            sent.push((number, script, request, protocol, ours));
        }
        let mut unlike = Vec::new();
        let mut all = Vec::new();
        for (_, _, request, protocol, _) in &sent {
            all.extend(both.receive(request, *protocol));
        }
        if all.len() < sent.len() {
            // One of them ends Redis.
            let Some(again) = Both::start() else { return 1 };
            both = again;
            all.clear();
            sent.retain(|(number, script, request, protocol, _)| {
                let theirs = both.theirs(&script.text, request, *protocol);
                let has_ended = theirs.is_none();
                if has_ended {
                    println!("--- ends redis-server: script {number}\n{}\n", script.text);
                    counts.ended += 1;
                    both = Both::start().expect("it has started before");
                }
                all.extend(theirs);
                !has_ended
            });
        }
        for ((number, script, request, protocol, ours), theirs) in sent.into_iter().zip(all) {
            counts.compared[usize::from(protocol == 3)] += 1;
            match verdict(&ours, &theirs) {
                Verdict::Same => {}
                Verdict::Digits => counts.digits += 1,
                Verdict::Unlike => unlike.push((number, script, request, protocol)),
            }
        }
        for (number, script, request, protocol) in unlike {
            if !both.differs(&script.text, &request, protocol) {
                counts.undetermined += 1;
                continue;
            }
            let least = shrink(&script.text, |text| both.differs(text, &request, protocol));
            let ours = both.ours(&least, &request, protocol).unwrap_or_default();
            let theirs = both.theirs(&least, &request, protocol).unwrap_or_default();
            println!(
                "--- Redis: seed {}, script {number}, RESP{protocol}, {:?} {:?} {:?}\n{least}\n\
                 Leasehold: {}\nRedis:     {}\n",
                options.seed,
                request.form,
                request.keys,
                request.words,
                ours.join(" "),
                theirs.join(" ")
            );
            *found.entry(least).or_default() += 1;
        }
    }
    let [two, three] = counts.compared;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "redis-server, seed {}: {} scripts ({two} in RESP2, {three} in RESP3) in {seconds:.0} s, \
         {:.0} a second; numbers in full {}, undetermined {}, kept from it {}, ended \
         it {}; {} differences",
        options.seed,
        two + three,
        (two + three) as f64 / seconds,
        counts.digits,
        counts.undetermined,
        counts.kept,
        counts.ended,
        found.len()
    );
    found.len()
}

#[derive(Default)]
struct Counts {
    compared: [u64; 2],
    digits: u64,
    undetermined: u64,
    kept: u64,
    ended: u64,
}

/// The two servers.
struct Both {
    side: Side,
    wires: [Wire; 2],
    /// Receives what is published, as somebody does in [`Side`]: `PUBLISH` counts them.
    _listener: Wire,
    _server: RedisServer,
}

impl Both {
    /// `None` if there is no Redis.
    fn start() -> Option<Both> {
        let server = RedisServer::start()?;
        let wires = PROTOCOLS.map(|protocol| {
            let mut wire = Wire::connect(server.address(), protocol);
            // Each connection has keys of its own.
            wire.ask(&format!("SELECT {protocol}"));
            wire
        });
        let mut listener = Wire::connect(server.address(), 2);
        listener.ask("PSUBSCRIBE *");
        Some(Both { side: Side::new(true), wires, _listener: listener, _server: server })
    }

    fn commands(script: &str, request: &Request) -> Vec<Vec<String>> {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect();
        let mut all: Vec<Vec<String>> = vec![words("FLUSHDB")];
        all.extend(WORLD.iter().map(|line| words(line)));
        all.extend(request.commands(script));
        all.push(["EVAL", KEYS_WITH_VALUES, "0"].map(str::to_owned).to_vec());
        all
    }

    /// What we answer. `None` if the script has no end or fills the memory.
    fn ours(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        let mut replies = Vec::new();
        for command in Both::commands(script, request) {
            let argv: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            let reply = self.side.send(protocol, &argv);
            if contains(&reply, b"Script killed by user") || contains(&reply, b"not enough memory")
            {
                return None;
            }
            replies.push(frame_of(&reply).notation());
        }
        Some(replies)
    }

    fn send(&mut self, script: &str, request: &Request, protocol: u8) {
        for command in Both::commands(script, request) {
            self.wires[usize::from(protocol == 3)].send(&command);
        }
    }

    /// `None` if the server has ended.
    fn receive(&mut self, request: &Request, protocol: u8) -> Option<Vec<String>> {
        let wire = &mut self.wires[usize::from(protocol == 3)];
        let count = Both::commands("", request).len();
        (0..count).map(|_| wire.try_read().ok().map(|reply| frame_of(&reply).notation())).collect()
    }

    fn theirs(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        self.send(script, request, protocol);
        self.receive(request, protocol)
    }

    /// Whether the servers differ, though each does the same again.
    fn differs(&mut self, script: &str, request: &Request, protocol: u8) -> bool {
        let Some(ours) = self.ours(script, request, protocol) else { return false };
        let Some(theirs) = self.theirs(script, request, protocol) else { return false };
        if verdict(&ours, &theirs) != Verdict::Unlike {
            return false;
        }
        // Another engine has its tables at other addresses.
        let same = self.side_anew(script, request, protocol) == Some(ours);
        same && self.theirs(script, request, protocol) == Some(theirs)
    }

    fn side_anew(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        let used = std::mem::replace(&mut self.side, Side::new(true));
        let replies = self.ours(script, request, protocol);
        self.side = used;
        replies
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// They differ in how long numbers are written, and in nothing else.
    Digits,
    Unlike,
}

fn verdict(ours: &[String], theirs: &[String]) -> Verdict {
    if ours == theirs {
        return Verdict::Same;
    }
    let in_short =
        |replies: &[String]| replies.iter().map(|reply| shortened(reply)).collect::<Vec<_>>();
    match in_short(ours) == in_short(theirs) {
        true => Verdict::Digits,
        false => Verdict::Unlike,
    }
}

/// A text with every number of many digits, or with an exponent, in one form.
fn shortened(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = number_length(rest);
        let (number, behind) = rest.split_at(length);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        let is_long = digits >= LONG_DIGITS || number.contains('e');
        match number.parse::<f64>() {
            // Minus zero, too, is written as it is by 7.0.
            Ok(value) if is_long || value == 0.0 => {
                if value == 0.0 && out.ends_with('-') {
                    out.pop();
                }
                out.push_str(&value.to_string());
            }
            _ => out.push_str(number),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// The length of the number at the beginning of a text.
fn number_length(text: &str) -> usize {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut length = digits(0);
    if text[length..].starts_with('.') && digits(length + 1) > 0 {
        length += 1 + digits(length + 1);
    }
    if text[length..].starts_with('e') {
        let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
        let exponent = digits(length + 1 + sign);
        if exponent > 0 {
            length += 1 + sign + exponent;
        }
    }
    length
}
