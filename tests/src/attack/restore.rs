//! Sends mutated payloads to `RESTORE`, on Lockwheel and on a `redis-server` with full checks.
//!
//! Payloads of every type and encoding are dumped by both servers, changed, and given a new
//! checksum, so that the changes reach the decoder. A restored key must behave as its type does.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use lockwheel_compat::cases;
use lockwheel_compat::cases::case::Action;
use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::{Frame, quoted};
use lockwheel_compat::wire::{Wire, request};
use lockwheel_engine::store::serialised::seal_as;

use super::Report;
use super::attack_target::{AttackTarget, connect};
use crate::redis_server::RedisServer;

/// The time-out of a batch, also on a busy machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which `redis-server` counts as hung: some payloads cause that.
const ORACLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of payloads sent together.
const BATCH: u64 = 200;
/// The version of the format that `redis-server` 7.0 reads and writes.
const VERSION: u16 = 10;
/// The version and the checksum.
const SEAL_BYTES: usize = 10;
/// The first form that is new in Redis 7.2.
const FORM_OF_7_2: u8 = 20;
/// Number of payloads of which one has a wrong checksum.
const UNSEALED_ONE_IN: u64 = 50;
/// Number of payloads of which one has another version.
const OTHER_VERSION_ONE_IN: u64 = 50;
/// The growth of memory that is allowed: the memory that the allocator keeps.
const KEPT_BYTES_MAX: u64 = 512 << 20;
/// The largest memory at any time: a value of the largest size, and a copy of it.
const HELD_BYTES_MAX: u64 = 3 << 30;

/// The keys to dump: settings, then commands on the key `k`.
const RECIPES: &[&str] = &[
    "SET k hello",
    "SET k 12",
    "SET k -70000",
    "SET k 9223372036854775807",
    "SETRANGE k 300 x",
    "RPUSH k a 1 -500 99999 70000 5000000000 abcdefgh",
    "CONFIG SET list-max-listpack-size 2; RPUSH k a b c d 1 2 3 4 5 6 7 8 9",
    "CONFIG SET list-max-listpack-size -1; RPUSH k LONG LONG LONG a",
    "SADD k 1 2 300 70000",
    "SADD k 1 5000000000 -5",
    "SADD k a b c 1 LONG",
    "CONFIG SET set-max-intset-entries 2; SADD k 1 2 3 4 5",
    "HSET k f v g 12 h LONG",
    "CONFIG SET hash-max-listpack-entries 1; HSET k f v g 12 h -1",
    "ZADD k 1 a 2.5 b -inf c inf d 0.1 e",
    "CONFIG SET zset-max-listpack-entries 1; ZADD k 1 a 2.5 b -inf c inf d LONG-SCORE e",
    "XADD k 1-1 f v g w; XADD k 1-2 f v g w; XADD k 5-0 other 7; XDEL k 1-2",
    "CONFIG SET stream-node-max-entries 2; XADD k 1-1 f v; XADD k 1-2 f v; XADD k 1-3 f v; \
     XADD k 2-1 f v; XGROUP CREATE k one 0; XGROUP CREATE k two $ ENTRIESREAD 2; \
     XREADGROUP GROUP one me COUNT 3 STREAMS k >; XREADGROUP GROUP one you STREAMS k >; \
     XGROUP CREATECONSUMER k one idle; XACK k one 1-2",
    "XGROUP CREATE k g 0 MKSTREAM",
    "XADD k 1-1 f v; XDEL k 1-1",
];

/// The defaults of the settings that recipes change.
const DEFAULTS: &str = "CONFIG SET list-max-listpack-size -2 set-max-intset-entries 512 \
                        hash-max-listpack-entries 128 zset-max-listpack-entries 128 \
                        stream-node-max-entries 100";

/// A difference that `docs/differences.md` explains.
struct KnownPayloadDifference {
    name: &'static str,
    is: fn(&PayloadDifference<'_>) -> bool,
}

/// The results of one payload on two servers.
struct PayloadDifference<'a> {
    payload: &'a [u8],
    ours: &'a Frame,
    theirs: &'a Frame,
    /// The contents of the restored value, if any.
    contents: [&'a [Frame]; 2],
}

impl PayloadDifference<'_> {
    fn is_refused_here(&self) -> bool {
        self.ours.kind == b'-' && self.theirs.kind != b'-'
    }

    fn is_taken_by_both(&self) -> bool {
        self.ours.kind != b'-' && self.theirs.kind != b'-'
    }

    fn version(&self) -> Option<u16> {
        let (_, seal) = self.payload.split_last_chunk::<SEAL_BYTES>()?;
        Some(u16::from_le_bytes([seal[0], seal[1]]))
    }

    fn form(&self) -> u8 {
        self.payload.first().copied().unwrap_or_default()
    }
}

/// The reply to one of [`READS`].
fn reply_to<'a>(contents: &'a [Frame], read: &str) -> &'a [Frame] {
    let at = READS.iter().position(|other| *other == read);
    at.and_then(|at| contents.get(at)).map_or(&[], |frame| &frame.items)
}

/// The value after a name in a reply of names and values.
fn field<'a>(items: &'a [Frame], name: &str) -> Option<&'a Frame> {
    let at = items.iter().position(|item| item.text == name.as_bytes())?;
    items.get(at + 1)
}

/// The two numbers of a stream id.
fn id(frame: &Frame) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(&frame.text).ok()?;
    let (ms, seq) = text.split_once('-')?;
    Some((ms.parse().ok()?, seq.parse().ok()?))
}

const KNOWN_PAYLOAD_DIFFERENCES: &[KnownPayloadDifference] = &[
    KnownPayloadDifference {
        name: "payloads of 7.2",
        is: |observed| {
            let is_new = observed.version() == Some(VERSION + 1) || observed.form() >= FORM_OF_7_2;
            observed.theirs.kind == b'-' && is_new
        },
    },
    KnownPayloadDifference {
        name: "scores followed by text",
        is: |observed| observed.is_refused_here() && SCORES_AS_TEXT.contains(&observed.form()),
    },
    KnownPayloadDifference {
        name: "sorted sets out of order",
        is: |observed| {
            let [ours, theirs] = observed.contents.map(<[Frame]>::to_vec);
            observed.is_taken_by_both() && same_contents(&ours, &in_order(theirs))
        },
    },
    KnownPayloadDifference {
        name: "streams out of order, or of another length",
        is: |observed| {
            let stream = observed.contents[1];
            let entries = reply_to(stream, "XRANGE k - +").iter();
            let mut ids: Vec<_> = entries.map(|entry| entry.items.first().and_then(id)).collect();
            ids.push(field(reply_to(stream, "XINFO STREAM k"), "last-generated-id").and_then(id));
            let ids_but_last = &ids[..ids.len() - 1];
            let rises = ids_but_last.windows(2).all(|pair| pair[0] < pair[1]);
            let length = field(reply_to(stream, "XINFO STREAM k"), "length");
            let is_long = |length: &Frame| length.text == ids_but_last.len().to_string().as_bytes();
            let is_odd = !rises || ids_but_last.last() > ids.last() || !length.is_some_and(is_long);
            observed.is_refused_here()
                && observed.contents[1].first().is_some_and(is_stream)
                && is_odd
        },
    },
    KnownPayloadDifference {
        name: "the first entry that a stream says it has",
        is: |observed| {
            let [ours, theirs] = observed.contents.map(<[Frame]>::to_vec);
            let first = |contents: &[Frame]| {
                let info = reply_to(contents, "XINFO STREAM k");
                field(info, "recorded-first-entry-id").cloned()
            };
            let without = |mut contents: Vec<Frame>| {
                for frame in &mut contents {
                    blank(frame, &["recorded-first-entry-id", "lag"]);
                }
                contents
            };
            observed.is_taken_by_both()
                && first(&ours) != first(&theirs)
                && same_contents(&without(ours), &without(theirs))
        },
    },
];

fn is_stream(shown: &Frame) -> bool {
    shown.text == b"stream"
}

/// Forms with scores as text.
const SCORES_AS_TEXT: [u8; 3] = [3, 12, 17];

/// The contents with sorted sets in order.
fn in_order(mut contents: Vec<Frame>) -> Vec<Frame> {
    let at = READS.iter().position(|read| *read == "ZRANGE k 0 -1 WITHSCORES");
    if let Some(frame) = at.and_then(|at| contents.get_mut(at)) {
        let score = |pair: &[Frame]| {
            let text = String::from_utf8_lossy(&pair[1].text).into_owned();
            text.parse::<f64>().unwrap_or(f64::NAN)
        };
        let mut pairs: Vec<_> = frame.items.chunks_exact(2).map(<[Frame]>::to_vec).collect();
        pairs.sort_by(|a, b| score(a).total_cmp(&score(b)).then_with(|| a[0].cmp(&b[0])));
        frame.items = pairs.concat();
    }
    contents
}

/// Removes the values after these names.
fn blank(frame: &mut Frame, names: &[&str]) {
    frame.walk(&mut |frame| {
        for at in 1..frame.items.len() {
            if names.iter().any(|name| frame.items[at - 1].text == name.as_bytes()) {
                frame.items[at] = frame.items[at - 1].clone();
            }
        }
    });
}

/// Sends `payloads` payloads to both servers. `None` without a `redis-server`.
pub fn attack(payloads: u64, seed: u64, progress: &mut dyn FnMut(u64, usize)) -> Option<Report> {
    let mut attack = Attack {
        server: AttackTarget::start(&[]),
        oracle: start_oracle()?,
        report: Report::default(),
        counts: BTreeMap::new(),
        oracle_crashes: 0,
    };
    let begin = attack.server.held();
    let corpus = attack.corpus().expect("both can be dumped from");
    let mut sent = 0;
    while sent < payloads && attack.report.problems.len() < 20 {
        let count = BATCH.min(payloads - sent);
        let batch: Vec<_> = (sent..sent + count).map(|n| mutated(&corpus, seed, n)).collect();
        if let Err(problem) = attack.send(&batch) {
            attack.report.add_problem(problem);
            break;
        }
        sent += count;
        progress(sent, attack.report.problems.len());
    }
    let Attack { server, mut report, counts, oracle_crashes, .. } = attack;
    report.figures.push(format!(
        "{sent} payloads made of {} of every type, seed {seed}; redis-server ended {} times",
        corpus.len(),
        oracle_crashes
    ));
    report.figures.extend(counts.iter().map(|(what, count)| format!("{what}: {count}")));
    let end = server.held();
    report.figures.push(format!("{end:?}"));
    if end.resident_bytes > begin.resident_bytes + KEPT_BYTES_MAX
        || end.resident_bytes_max > HELD_BYTES_MAX
    {
        report.add_problem(format!("too much memory is held: {begin:?}, {end:?}"));
    }
    if let Some(problem) = server.end(REPLY_TIMEOUT) {
        report.add_problem(problem);
    }
    Some(report)
}

fn start_oracle() -> Option<RedisServer> {
    let oracle = RedisServer::start()?;
    let mut wire = connect(oracle.address(), 2, REPLY_TIMEOUT).expect("it is there");
    let reply = wire.call(&["CONFIG", "SET", "sanitize-dump-payload", "yes"]);
    assert!(reply.is_ok_and(|reply| reply.text == b"OK"), "it checks payloads");
    Some(oracle)
}

/// A mutated payload of the corpus.
fn mutated(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    const TELLING: [u8; 16] =
        [0, 1, 2, 3, 0x3f, 0x40, 0x7f, 0x80, 0x81, 0xc0, 0xc3, 0xe0, 0xf0, 0xf4, 0xfe, 0xff];
    let mut random = Random::of(seed, number);
    let mut body = random.pick(corpus).clone();
    for _ in 0..=random.below(3) {
        let at = random.below(body.len() as u64 + 1) as usize;
        let end = (at + 1 + random.below(16) as usize).min(body.len());
        match random.below(12) {
            _ if body.is_empty() => body.push(random.bits() as u8),
            0..3 if at < body.len() => body[at] ^= 1 << random.below(8),
            3 if at < body.len() => body[at] = random.bits() as u8,
            4..6 if at < body.len() => body[at] = *random.pick(&TELLING),
            6 => body.insert(at, *random.pick(&TELLING)),
            7 => body.truncate(at),
            8 => drop(body.drain(at.min(end)..end)),
            9 => {
                let again = body[at.min(end)..end].to_vec();
                body.splice(at..at, again);
            }
            10 => {
                let other = random.pick(corpus);
                let from = random.below(other.len() as u64) as usize;
                body.truncate(at);
                body.extend_from_slice(&other[from..]);
            }
            _ => {
                let number = match random.below(4) {
                    0 => random.bits(),
                    1 => u64::from(u32::MAX) - random.below(4),
                    2 => 1 << random.below(64),
                    _ => u64::MAX - random.below(4),
                };
                let width = *random.pick(&[2, 4, 8]);
                for (place, byte) in body.iter_mut().skip(at).zip(&number.to_le_bytes()[..width]) {
                    *place = *byte;
                }
            }
        }
    }
    let version = match random.once_in(OTHER_VERSION_ONE_IN) {
        true => *random.pick(&[0, 6, 9, VERSION + 1, VERSION + 2, u16::MAX]),
        false => VERSION,
    };
    let mut payload = seal_as(version, body);
    if random.once_in(UNSEALED_ONE_IN) {
        let at = random.below(payload.len() as u64) as usize;
        payload[at] ^= 1 << random.below(8);
    }
    payload
}

struct Attack {
    server: AttackTarget,
    oracle: RedisServer,
    report: Report,
    counts: BTreeMap<String, u64>,
    oracle_crashes: u64,
}

/// A server's replies to payloads, and the contents of the restored keys.
struct BatchResult {
    replies: Vec<Frame>,
    contents: BTreeMap<usize, Vec<Frame>>,
}

impl Attack {
    /// Payloads without version and checksum, of both servers and of earlier versions.
    fn corpus(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut corpus = Vec::new();
        for address in [self.server.address(), self.oracle.address()] {
            let mut wire = connect(address, 2, REPLY_TIMEOUT)?;
            for recipe in RECIPES {
                for line in recipe.split("; ").chain(["DUMP k", "DEL k", DEFAULTS]) {
                    let long = "abcabcabcabc".repeat(40);
                    let line = line.replace("LONG-SCORE", "0.1").replace("LONG", &long);
                    let reply = wire.call(&line.split_whitespace().collect::<Vec<_>>())?;
                    assert_ne!(reply.kind, b'-', "{line}: {}", reply.notation());
                    if line == "DUMP k" {
                        corpus.push(reply.text[..reply.text.len() - SEAL_BYTES].to_vec());
                    }
                }
            }
        }
        // The payloads of earlier versions.
        let cases = cases::all().map_err(io::Error::other)?;
        for step in cases.iter().flat_map(|case| &case.steps) {
            let Action::Send(_, words) = &step.action else { continue };
            let is_restore = words.first().is_some_and(|name| name == b"RESTORE");
            let payload = words.get(3).filter(|it| is_restore && it.len() > SEAL_BYTES);
            corpus.extend(payload.map(|payload| payload[..payload.len() - SEAL_BYTES].to_vec()));
        }
        corpus.sort();
        corpus.dedup();
        Ok(corpus)
    }

    /// Sends payloads to both servers and compares. An error ends the attack.
    fn send(&mut self, batch: &[Vec<u8>]) -> Result<(), String> {
        let ours = match restore_batch(self.server.address(), batch, REPLY_TIMEOUT) {
            Ok(restored_batch) => restored_batch,
            Err(error) => return Err(self.failure(batch, &error)),
        };
        let theirs = match restore_batch(self.oracle.address(), batch, ORACLE_TIMEOUT) {
            Ok(restored_batch) => restored_batch,
            Err(_) => {
                self.restart_oracle();
                return self.send_singly(batch);
            }
        };
        self.exercise(batch, &ours).map_err(|error| self.failure(batch, &error))?;
        for (at, payload) in batch.iter().enumerate() {
            self.compare(payload, at, &ours, &theirs);
        }
        Ok(())
    }

    /// As [`Attack::send`], one payload after the other: one of them crashes `redis-server`.
    fn send_singly(&mut self, batch: &[Vec<u8>]) -> Result<(), String> {
        for payload in batch.chunks(1) {
            let ours = restore_batch(self.server.address(), payload, REPLY_TIMEOUT);
            let ours = ours.map_err(|error| self.failure(payload, &error))?;
            match restore_batch(self.oracle.address(), payload, ORACLE_TIMEOUT) {
                Ok(theirs) => self.compare(&payload[0], 0, &ours, &theirs),
                Err(_) => self.restart_oracle(),
            }
        }
        Ok(())
    }

    fn restart_oracle(&mut self) {
        self.oracle_crashes += 1;
        self.oracle = start_oracle().expect("it was there before");
    }

    /// The report of a server that has failed: its problem and the payloads of the batch.
    fn failure(&mut self, batch: &[Vec<u8>], error: &io::Error) -> String {
        let problem = self.server.problem(REPLY_TIMEOUT).unwrap_or_default();
        let payloads: Vec<_> = batch.iter().map(|payload| quoted(payload)).collect();
        format!("{error}; {problem}\none of:\n{}", payloads.join("\n"))
    }

    fn compare(&mut self, payload: &[u8], at: usize, ours: &BatchResult, theirs: &BatchResult) {
        let (mine, other) = (&ours.replies[at], &theirs.replies[at]);
        let taken = |frame: &Frame| if frame.kind == b'-' { "refused" } else { "taken" };
        let contents = [ours, theirs]
            .map(|restored_batch| restored_batch.contents.get(&at).map_or(&[][..], |it| it));
        let observed = PayloadDifference { payload, ours: mine, theirs: other, contents };
        let same = mine == other
            && match (ours.contents.get(&at), theirs.contents.get(&at)) {
                (Some(mine), Some(other)) => same_contents(mine, other),
                _ => true,
            };
        if same {
            *self.counts.entry(format!("{} by both", taken(mine))).or_default() += 1;
            return;
        }
        if observed.is_refused_here() && self.runs_into_its_seal(payload, contents[1]) {
            *self.counts.entry("explained: runs into its own seal".to_owned()).or_default() += 1;
            return;
        }
        if let Some(known) = KNOWN_PAYLOAD_DIFFERENCES.iter().find(|known| (known.is)(&observed)) {
            *self.counts.entry(format!("explained: {}", known.name)).or_default() += 1;
            return;
        }
        let [mine_contents, other_contents] = contents.map(|frames| {
            let shown = frames.iter().filter(|frame| !frame.text.starts_with(b"WRONGTYPE"));
            shown.map(Frame::notation).collect::<Vec<_>>().join(" ")
        });
        let kind = if observed.is_refused_here() {
            "refused only here"
        } else if observed.is_taken_by_both() {
            "made something else of"
        } else {
            "taken only here, or refused in other words"
        };
        let kind = format!("{kind}, form {}", observed.form());
        let times = self.counts.entry(format!("not explained: {kind}")).or_default();
        *times += 1;
        if *times <= 3 {
            self.report.add_problem(format!(
                "{kind}: RESTORE k 0 {}\n  ours:   {} {}\n  theirs: {} {}",
                quoted(payload),
                mine.notation(),
                mine_contents,
                other.notation(),
                other_contents
            ));
        }
    }

    /// Whether the value includes bytes after its end, where Redis reads the version and checksum:
    /// it is equal here if these belong to the value.
    fn runs_into_its_seal(&self, payload: &[u8], theirs: &[Frame]) -> bool {
        let longer = seal_as(VERSION, payload.to_vec());
        let restored_batch = restore_batch(self.server.address(), &[longer], REPLY_TIMEOUT);
        restored_batch.is_ok_and(|restored_batch| {
            restored_batch.contents.get(&0).is_some_and(|ours| same_contents(ours, theirs))
        })
    }

    /// Dumps the restored keys, restores the dumps, changes the keys and removes them.
    fn exercise(&mut self, batch: &[Vec<u8>], restored_batch: &BatchResult) -> io::Result<()> {
        let mut wire = connect(self.server.address(), 2, REPLY_TIMEOUT)?;
        let taken: Vec<usize> = restored_batch.contents.keys().copied().collect();
        let dumps = ask(&mut wire, taken.iter().map(|at| vec![b"DUMP".to_vec(), key(*at)]))?;
        let again = taken.iter().zip(&dumps).map(|(at, dump)| {
            let (copy, never) = ([&key(*at)[..], b":copy"].concat(), b"0".to_vec());
            vec![b"RESTORE".to_vec(), copy, never, dump.text.clone()]
        });
        let restored = ask(&mut wire, again)?;
        let copies = taken.iter().map(|at| [&key(*at)[..], b":copy"].concat());
        let again = ask(&mut wire, copies.map(|copy| vec![b"DUMP".to_vec(), copy]))?;
        let mut writes = Vec::new();
        for at in &taken {
            for write in WRITES {
                writes.push(command(write, &key(*at)));
            }
        }
        ask(&mut wire, writes.into_iter())?;
        let rest = taken.iter().map(|at| vec![b"EXISTS".to_vec(), key(*at)]);
        let rest = ask(&mut wire, rest)?;
        for (place, at) in taken.iter().enumerate() {
            let is_well = restored[place].text == b"OK"
                && again[place] == dumps[place]
                && rest[place].text == b"0";
            if !is_well {
                self.report.add_problem(format!(
                    "does not behave: RESTORE k 0 {}\n  {} {} {}",
                    quoted(&batch[*at]),
                    restored[place].notation(),
                    dumps[place].notation(),
                    again[place].notation()
                ));
            }
        }
        ask(&mut wire, std::iter::once(vec![b"FLUSHALL".to_vec()])).map(drop)
    }
}

/// Commands that change a key of unknown type; the last removes it.
const WRITES: &[&str] = &[
    "APPEND k v",
    "SETBIT k 77 1",
    "INCR k",
    "RPUSH k v",
    "LINSERT k BEFORE v w",
    "LTRIM k 1 -2",
    "LPOP k",
    "SADD k v 1 99999999999",
    "SREM k a 1",
    "SPOP k",
    "HSET k v 1 f 2",
    "HINCRBY k v 1",
    "HDEL k f",
    "ZADD k 1 v",
    "ZINCRBY k 1 v",
    "ZREMRANGEBYRANK k 0 0",
    "ZPOPMIN k",
    "XADD k * f v",
    "XGROUP CREATE k new 0",
    "XREADGROUP GROUP new c COUNT 5 STREAMS k >",
    "XAUTOCLAIM k new d 0 -",
    "XTRIM k MAXLEN 1",
    "XGROUP DESTROY k new",
    "SORT k ALPHA",
    "COPY k spare REPLACE",
    "RENAME k k",
    "OBJECT ENCODING k",
    "MEMORY USAGE k",
    "DEL k",
];

/// Commands that read a key of unknown type: both servers refuse those of another type.
const READS: &[&str] = &[
    "TYPE k",
    "GET k",
    "LRANGE k 0 -1",
    "SMEMBERS k",
    "HGETALL k",
    "ZRANGE k 0 -1 WITHSCORES",
    "XRANGE k - +",
    "XINFO STREAM k",
    "XINFO GROUPS k",
];

fn key(number: usize) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

fn command(line: &str, key: &[u8]) -> Vec<Vec<u8>> {
    let word = |word: &str| if word == "k" { key.to_vec() } else { word.as_bytes().to_vec() };
    line.split(' ').map(word).collect()
}

/// Restores payloads on a server and reads the restored keys.
fn restore_batch(
    address: SocketAddr,
    batch: &[Vec<u8>],
    timeout: Duration,
) -> io::Result<BatchResult> {
    let mut wire = connect(address, 2, timeout)?;
    ask(&mut wire, std::iter::once(vec![b"FLUSHALL".to_vec()]))?;
    let restores = batch
        .iter()
        .enumerate()
        .map(|(at, payload)| vec![b"RESTORE".to_vec(), key(at), b"0".to_vec(), payload.clone()]);
    let replies = ask(&mut wire, restores)?;
    let taken: Vec<usize> = (0..batch.len()).filter(|at| replies[*at].kind != b'-').collect();
    let reads = taken.iter().flat_map(|at| READS.iter().map(|line| command(line, &key(*at))));
    let read = ask(&mut wire, reads)?;
    let contents = taken.into_iter().zip(read.chunks(READS.len()).map(<[Frame]>::to_vec));
    Ok(BatchResult { replies, contents: contents.collect() })
}

/// Sends requests together and reads all the replies.
fn ask(wire: &mut Wire, requests: impl Iterator<Item = Vec<Vec<u8>>>) -> io::Result<Vec<Frame>> {
    let requests: Vec<Vec<u8>> = requests.map(|words| request(&words)).collect();
    // Few enough for the socket buffers, so that neither side blocks the other.
    let mut replies = Vec::with_capacity(requests.len());
    for requests in requests.chunks(64) {
        wire.send_bytes(&requests.concat())?;
        for _ in requests {
            replies.push(wire.read()?);
        }
    }
    Ok(replies)
}

/// Whether the contents on two servers are equal, apart from the order of unordered elements and
/// the format of numbers.
fn same_contents(ours: &[Frame], theirs: &[Frame]) -> bool {
    let sorted = |frames: &[Frame]| {
        let mut frames = frames.to_vec();
        // The number of nodes differs between servers.
        frames.iter_mut().for_each(|it| blank(it, &["radix-tree-keys", "radix-tree-nodes"]));
        for (frame, read) in frames.iter_mut().zip(READS) {
            match *read {
                "SMEMBERS k" => frame.items.sort(),
                "HGETALL k" => {
                    let mut pairs: Vec<_> = frame.items.chunks(2).map(<[Frame]>::to_vec).collect();
                    pairs.sort();
                    frame.items = pairs.concat();
                }
                "ZRANGE k 0 -1 WITHSCORES" => {
                    for score in frame.items.iter_mut().skip(1).step_by(2) {
                        let text = String::from_utf8_lossy(&score.text).into_owned();
                        let number = text.parse::<f64>().map(|number| number.to_string());
                        score.text = number.unwrap_or(text).into_bytes();
                    }
                }
                _ => {}
            }
        }
        frames
    };
    sorted(ours) == sorted(theirs)
}
