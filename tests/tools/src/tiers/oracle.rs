//! Runs the same scripts on a real `redis-server`: replies and keys must be the same, except for
//! the differences in `docs/differences.md`.

use std::collections::BTreeMap;
use std::time::Instant;

use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::tiers::grammar::{self, Cell, INITIAL_KEYS, Request, Selection};
use lockwheel_tests::tiers::pair::{Side, contains};
use lockwheel_tests::tiers::trial::shrink;
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{PROTOCOLS, frame_of};

use crate::accepted::{AcceptedDifference, accepted_by_text, accepted_difference};
use crate::{Options, drawn};

/// Scripts that are sent before the first reply is read.
const PIPELINE: usize = 32;
/// Our reply to an error that is a table without a message. Redis 7.0 crashes.
const UNKNOWN_ERROR: &str = "ERR unknown error script: ";

/// Our replies to scripts that are not sent to Redis: the script does not end, exhausts the memory,
/// or makes a reply that nests more deeply than ours may.
const NOT_SENT: [&[u8]; 3] =
    [b"Script killed by user", b"not enough memory", b"ERR reached lua stack limit"];

/// All keys with their values and deadlines. Deadlines are those of the grammar, to the nearest
/// thousand seconds, because the clock of a real server advances.
const KEYS_WITH_VALUES: &str = "local all = {} \
    local keys = redis.call('keys', '*') \
    table.sort(keys) \
    for _, key in ipairs(keys) do \
      local kind = redis.call('type', key).ok \
      local value = 'nothing' \
      if kind == 'string' then value = redis.call('get', key) \
      elseif kind == 'list' then value = redis.call('lrange', key, 0, -1) \
      elseif kind == 'hash' then value = redis.call('hgetall', key) \
        if redis.call('object', 'encoding', key) == 'hashtable' then table.sort(value) end \
      elseif kind == 'zset' then value = redis.call('zrange', key, 0, -1, 'WITHSCORES') \
      elseif kind == 'stream' then value = redis.call('xrange', key, '-', '+') \
      elseif kind == 'set' then value = redis.call('smembers', key) table.sort(value) end \
      all[#all + 1] = {key, kind, value, math.floor((redis.call('pttl', key) + 500000) / 1000000)} \
    end \
    return all";

/// Compares Lockwheel and Redis. Returns the number of differences.
pub(crate) fn compare(options: &Options) -> usize {
    let Some(mut both) = Both::start() else { return 0 };
    let begin = Instant::now();
    let cells: Vec<Cell> = grammar::cells(Selection::Exact).collect();
    let mut counts = Counts::default();
    let mut found = BTreeMap::<String, u64>::new();
    let mut number = options.first;
    let end = options.first + options.sample;
    while number < end && found.len() < options.differences {
        let all: Vec<_> = (number..end.min(number + PIPELINE as u64))
            .map(|number| (number, drawn(options.seed, number, Selection::Exact, &cells)))
            .collect();
        number += PIPELINE as u64;
        // Ours first: a script that does not end, or needs too much memory, is not sent to Redis.
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
            // One of the scripts has ended Redis.
            let Some(again) = Both::start() else { return 1 };
            both = again;
            all.clear();
            sent.retain(|(number, script, request, protocol, ours)| {
                let theirs = both.theirs(&script.text, request, *protocol);
                let has_ended = theirs.is_none();
                if has_ended {
                    counts.ended += 1;
                    if !ours.iter().any(|reply| reply.contains(UNKNOWN_ERROR)) {
                        println!("--- ends redis-server: script {number}\n{}\n", script.text);
                        *found.entry(script.text.clone()).or_default() += 1;
                    }
                }
                all.extend(theirs);
                !has_ended
            });
        }
        for ((number, script, request, protocol, ours), theirs) in sent.into_iter().zip(all) {
            counts.compared[usize::from(protocol == 3)] += 1;
            if ours == theirs {
                continue;
            }
            match accepted_by_text(&script.text, &ours, &theirs) {
                Some(accepted_difference) => {
                    *counts.accepted.entry(accepted_difference).or_default() += 1;
                }
                None => unlike.push((number, script, request, protocol)),
            }
        }
        for (number, script, request, protocol) in unlike {
            match both.difference(&script.text, &request, protocol) {
                Comparison::Same => {
                    counts.undetermined += 1;
                    continue;
                }
                Comparison::Accepted(accepted_difference) => {
                    *counts.accepted.entry(accepted_difference).or_default() += 1;
                    continue;
                }
                Comparison::Differs => {}
            }
            let least = shrink(&script.text, |text| {
                both.difference(text, &request, protocol) == Comparison::Differs
            });
            let ours = both.ours(&least, &request, protocol).unwrap_or_default();
            let theirs = both.theirs(&least, &request, protocol).unwrap_or_default();
            println!(
                "--- Redis: seed {}, script {number}, RESP{protocol}, {:?} {:?} {:?}\n{least}\n\
                 Lockwheel: {}\nRedis:     {}\n",
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
         {:.0} a second; accepted {:?}, undetermined {}, not sent {}, crashed \
         {}; {} differences",
        options.seed,
        two + three,
        (two + three) as f64 / seconds,
        counts.accepted,
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
    accepted: BTreeMap<AcceptedDifference, u64>,
    undetermined: u64,
    kept: u64,
    ended: u64,
}

/// The two servers.
struct Both {
    side: Side,
    wires: [Wire; 2],
    /// Connection that is subscribed to everything as the client in [`Side`] is, because `PUBLISH`
    /// returns the number of receivers.
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
        all.extend(INITIAL_KEYS.iter().map(|line| words(line)));
        all.extend(request.commands(script));
        all.push(["EVAL", KEYS_WITH_VALUES, "0"].map(str::to_owned).to_vec());
        all
    }

    /// Our replies. `None` if the script is not sent to Redis.
    fn ours(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        let mut replies = Vec::new();
        for command in Both::commands(script, request) {
            let argv: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            let reply = self.side.send(protocol, &argv);
            if NOT_SENT.iter().any(|text| contains(&reply, text)) {
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

    /// Redis's replies. `None` if the script ends the server, which is then started again.
    fn theirs(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        self.send(script, request, protocol);
        let replies = self.receive(request, protocol);
        if replies.is_none() {
            *self = Both::start().expect("it has started before");
        }
        replies
    }

    /// Whether the servers differ, although each behaves alike when the script is run again.
    fn difference(&mut self, script: &str, request: &Request, protocol: u8) -> Comparison {
        let Some(ours) = self.ours(script, request, protocol) else { return Comparison::Same };
        let Some(theirs) = self.theirs(script, request, protocol) else { return Comparison::Same };
        if ours == theirs {
            return Comparison::Same;
        }
        let mut run = |text: &str| {
            Some([self.ours(text, request, protocol)?, self.theirs(text, request, protocol)?])
        };
        if let Some(accepted_difference) = accepted_difference(script, &ours, &theirs, &mut run) {
            return Comparison::Accepted(accepted_difference);
        }
        // Another engine has its tables at other addresses.
        let is_same = self.new_side(script, request, protocol) == Some(ours)
            && self.theirs(script, request, protocol) == Some(theirs);
        if is_same { Comparison::Differs } else { Comparison::Same }
    }

    fn new_side(&mut self, script: &str, request: &Request, protocol: u8) -> Option<Vec<String>> {
        let used = std::mem::replace(&mut self.side, Side::new(true));
        let replies = self.ours(script, request, protocol);
        self.side = used;
        replies
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Both servers behave alike, or one of them behaves differently each time.
    Same,
    Accepted(AcceptedDifference),
    Differs,
}
