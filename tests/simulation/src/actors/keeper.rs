//! A client that changes keys of all types and reads them back in the same transaction. After a
//! restart it must find them as it left them. It has a database for itself.

use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::Frame;
use lockwheel_compat::wire::request;

use super::{Actor, REPLY_TIMEOUT_US, number, owned, report_late_reply};
use crate::core::{Core, Notice};

/// Longest span by which the lease clock of a cluster is behind what an earlier leader has shown. A
/// leader records it each second, and serves for less than half a second if it cannot.
const BACK_MS_MAX: i64 = 1_500;

/// Changes of all kinds. `#` is a number, `long` a long text.
const CHANGES: &[&str] = &[
    "SET k v#",
    "SET k w#|PEXPIRE k 10000000",
    "SET k 7#|PERSIST k",
    "SET k 1#|EXPIRE k 3000000",
    "APPEND k x",
    "SETRANGE k 4 y#",
    "SETBIT b 100 1",
    "SETBIT b # 1",
    "DEL t|SET t short PX 1|SET u 1",
    "DEL t|SET t short PX 1",
    "HSET t f# v",
    "HSET t f# v",
    "RENAME k r",
    "DEL r|SET k a#|RENAME k r",
    "DEL c|SET k a#|COPY k c",
    "SET k a#|COPY k c REPLACE",
    "DEL l|RPUSH l a b|RENAME l m",
    "DEL m|RPUSH m c",
    "COPY k c REPLACE",
    "MOVE b 7",
    "DEL k",
    "HSET h f v# g w#",
    "HINCRBY h n 1",
    "HDEL h g",
    "HSET h f long",
    "DEL h",
    "RPUSH l a b c d e b",
    "LPOP l",
    "RPOP l",
    "LINSERT l BEFORE c z#",
    "LSET l 0 y#",
    "LREM l 1 b",
    "LTRIM l 0 9",
    "RPUSH l long",
    "LREM l 1 long",
    "SADD s 1 2 3 #",
    "SADD s a",
    "SREM s 2",
    "DEL s",
    "ZADD z 1 a 2 b 3 c 4 d # e",
    "ZREM z a",
    "ZREMRANGEBYRANK z 0 0",
    "ZADD z 5 long",
    "ZINCRBY z 6 c",
    "XADD x * f v",
    "XADD x * f v|XADD x * g w|XADD x * f v",
    "XTRIM x MAXLEN 2",
    "XADD x 99999999999999-# f v|XDEL x 99999999999999-#",
    "XADD x * f v|XSETID x 99999999999999-#",
    "DEL x|XADD x * f v|XADD x * f v|XGROUP CREATE x g 0",
    "XADD x * f v|XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "XADD x * f v|XREADGROUP GROUP g d STREAMS x >",
    "DEL x|XADD x 1-# f v|XGROUP CREATE x g 0|XREADGROUP GROUP g d STREAMS x >|XCLAIM x g c 0 1-#",
    "DEL x|XADD x 1-# f v|XGROUP CREATE x g 0|XREADGROUP GROUP g d STREAMS x >|XACK x g 1-#",
    "XGROUP SETID x g 1",
    "XGROUP CREATECONSUMER x g e",
    "XGROUP DELCONSUMER x g d",
    "XGROUP DESTROY x g",
    "SWAPDB 6 7",
    "FLUSHDB",
    "FUNCTION LOAD REPLACE one",
    "FUNCTION LOAD REPLACE two",
    "FUNCTION DELETE one",
    "FUNCTION FLUSH",
];

/// The commands that read everything.
const READS: &[&[&str]] = &[
    &["GET", "k"],
    &["GET", "r"],
    &["GET", "c"],
    &["GET", "u"],
    &["GET", "b"],
    &["HGETALL", "h"],
    &["HGETALL", "t"],
    &["LRANGE", "l", "0", "-1"],
    &["LRANGE", "m", "0", "-1"],
    &["SORT", "s", "ALPHA"],
    &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
    &["XINFO", "STREAM", "x", "FULL"],
    &["OBJECT", "ENCODING", "k"],
    &["OBJECT", "ENCODING", "h"],
    &["OBJECT", "ENCODING", "l"],
    &["OBJECT", "ENCODING", "s"],
    &["OBJECT", "ENCODING", "z"],
    &["FUNCTION", "LIST"],
    &["KEYS", "*"],
];

/// The keys whose deadlines are read.
const DEADLINES: &[&str] = &["k", "r", "c"];

/// A client that checks that its keys survive restarts.
pub struct Keeper {
    client: usize,
    connection: usize,
    random: Random,
    is_connected: bool,
    timer: u64,
    pending: Option<Pending>,
    /// What it has found last, and when it asked for that; none if it is not certain.
    known: Option<FoundState>,
}

struct Pending {
    asked_us: i64,
    /// Replies before the last one.
    left: usize,
    /// What was changed, for messages.
    change: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct FoundState {
    state: Vec<Frame>,
    /// The remaining lives of keys, at a time in this range.
    lives_ms: Vec<i64>,
    asked_us: i64,
    returned_us: i64,
}

impl Keeper {
    pub fn new(core: &mut Core, client: usize) -> Keeper {
        let random = Random::of(core.plan.seed, core.plan.roles[client].0);
        Keeper {
            client,
            connection: core.connect(client, 0, 0),
            random,
            is_connected: false,
            timer: 0,
            pending: None,
            known: None,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    /// Changes something, if `changes`, and reads everything.
    fn ask(&mut self, core: &mut Core, changes: bool) {
        let mut requests = vec![owned(&["MULTI"])];
        let mut change = None;
        if changes {
            for _ in 0..self.random.between(1, 4) {
                let template = self.random.pick(CHANGES);
                let number = self.random.below(60).to_string();
                change = Some(template.replace('#', &number));
                let commands = template.split('|');
                requests.extend(commands.map(|command| words(command, &number)));
            }
        }
        requests.extend(READS.iter().map(|read| owned(read)));
        requests.extend(DEADLINES.iter().map(|key| owned(&["PTTL", key])));
        requests.push(owned(&["EXEC"]));
        let bytes: Vec<u8> = requests.iter().flat_map(|words| request(words)).collect();
        core.send_bytes(self.connection, &bytes);
        let left = requests.len() - 1;
        self.pending = Some(Pending { asked_us: core.now_us, left, change });
        self.set_timer(core, REPLY_TIMEOUT_US);
    }

    fn replied(&mut self, core: &mut Core, frame: Frame) {
        let Some(pending) = &mut self.pending else { return };
        if pending.left > 0 {
            pending.left -= 1;
            return;
        }
        let Some(pending) = self.pending.take() else { return };
        let mut state = frame.items;
        if state.len() < READS.len() + DEADLINES.len() {
            return self.set_timer(core, 50_000);
        }
        let lives = state.split_off(state.len() - DEADLINES.len());
        let lives_ms = lives.iter().map(|life| number(life).unwrap_or_default()).collect();
        let mut state = state.split_off(state.len() - READS.len());
        // The key `t` is a hash, or a string that expires by itself.
        for frame in state.iter_mut().filter(|frame| frame.kind == b'-') {
            *frame = Frame { kind: b'*', text: Vec::new(), ..frame.clone() };
        }
        if let Some(keys) = state.last_mut() {
            keys.items.retain(|key| key.text != b"t");
            keys.items.sort();
        }
        for (frame, read) in state.iter_mut().zip(READS) {
            if read[0] == "HGETALL" {
                sort_fields(frame);
            }
        }
        let (asked_us, returned_us) = (pending.asked_us, core.now_us);
        let found = FoundState { state, lives_ms, asked_us, returned_us };
        if pending.change.is_none() {
            if let Some(known) = &self.known {
                compare(core, known, &found);
            }
        }
        self.known = Some(found);
        let after_us = self.random.between(0, 50_000);
        self.set_timer(core, after_us);
    }
}

/// Sorts the fields of a hash. A new field takes the place of one that was removed, which a
/// snapshot does not contain.
fn sort_fields(frame: &mut Frame) {
    let mut fields: Vec<Vec<Frame>> = frame.items.chunks(2).map(<[Frame]>::to_vec).collect();
    fields.sort();
    frame.items = fields.concat();
}

fn compare(core: &mut Core, known: &FoundState, found: &FoundState) {
    for ((was, is), read) in known.state.iter().zip(&found.state).zip(READS) {
        if was != is {
            let text =
                format!("{} was {}, and is {}", read.join(" "), was.notation(), is.notation());
            return core.report("keeper", text);
        }
    }
    // The lease clock may go back to the last change when the machine starts again.
    let goes_back = core.plan.faults.iter().any(|fault| fault.kind.moves_lease_clock());
    let back_ms = match (core.plan.is_cluster, goes_back) {
        (true, _) => BACK_MS_MAX,
        (false, true) => i64::MAX,
        (false, false) => 0,
    };
    for ((was_ms, is_ms), key) in known.lives_ms.iter().zip(&found.lives_ms).zip(DEADLINES) {
        let longest_ms = (found.returned_us - known.asked_us) / 1000 + 2;
        let is_wrong = match (*was_ms, *is_ms) {
            (0.., 0..) => is_ms - was_ms > back_ms || *is_ms < *was_ms - longest_ms,
            (was_ms, is_ms) => was_ms != is_ms,
        };
        if is_wrong {
            let text = format!("the life of {key} was {was_ms} ms, and is {is_ms} ms");
            return core.report("keeper", text);
        }
    }
}

impl Actor for Keeper {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.is_connected = true;
                core.send(self.connection, &["SELECT", "6"]);
                self.ask(core, false);
                if let Some(pending) = &mut self.pending {
                    pending.left += 1;
                }
            }
            Notice::Lost(..) => {
                self.is_connected = false;
                if self.pending.take().is_some_and(|pending| pending.change.is_some()) {
                    // It may have been carried out or not.
                    self.known = None;
                }
            }
            Notice::Received(_, frame) => self.replied(core, frame),
            Notice::Timer(timer) if timer == self.timer && self.is_connected => {
                match &self.pending {
                    Some(pending) => {
                        report_late_reply(core, pending.asked_us, "a transaction");
                        core.lose(self.connection);
                    }
                    None => {
                        let changes = !core.is_ending && !self.random.once_in(4);
                        self.ask(core, changes);
                    }
                }
            }
            Notice::Timer(_) => {}
        }
    }
}

fn words(command: &str, number: &str) -> Vec<String> {
    let word = |word: &str| match word {
        "long" => "x".repeat(9_000),
        "one" | "two" => {
            let body = "function() return 1 end";
            let code = format!("#!lua name={word}\nredis.register_function('{word}', {body})");
            if command.contains("LOAD") { code } else { word.to_owned() }
        }
        word => word.replace('#', number),
    };
    command.split(' ').map(word).collect()
}
