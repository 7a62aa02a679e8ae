//! Random arguments for every command that is in the tables of both servers. Most requests are
//! invalid, and both servers must refuse them with the same error, also in transactions and
//! scripts. Both servers must belong to the fuzzer, since databases are flushed.

use std::io;

use super::draw::Draw;
use super::episode::{CALLING, Episode, LISTENER, Step};
use super::grammar::Grammar;
use super::kinds::{self, edge};
use super::known::may_differ;
use super::reference::is_named;
use super::safety::{block_ms, step_is_safe};
use crate::random::Random;
use crate::wire::Wire;
use crate::wire::frame::Frame;

/// The range of the number of requests in an episode.
const STEPS: (i64, i64) = (80, 200);
/// The largest number of requests that a client sends in a row.
const RUN_MAX: u64 = 32;
/// The largest number of arguments.
const ARGUMENTS_MAX: u64 = 8;
/// The length of a long argument.
const LONG_BYTES: usize = 64 * 1024;
/// The clients that send requests.
const CLIENTS: [char; 2] = ['a', 'b'];

/// Commands that are not drawn, and why. A name includes its subcommands.
pub const EXCLUDED: &[(&str, &str)] = &[
    ("ACL", "all clients share users; passwords are random"),
    ("BGREWRITEAOF", "writes to the server's disk"),
    ("BGSAVE", "writes to the server's disk"),
    ("CLIENT KILL", "ends other connections, the fuzzer's own among them"),
    ("CLIENT PAUSE", "stops every connection"),
    ("CLIENT REPLY", "a connection without replies cannot be compared"),
    ("COMMAND COUNT", "each server has its own commands"),
    ("COMMAND DOCS", "summaries are in our own words"),
    ("COMMAND GETKEYSANDFLAGS", "flags change from release to release"),
    ("COMMAND INFO", "flags change from release to release"),
    ("COMMAND LIST", "each server has its own commands"),
    ("CONFIG REWRITE", "writes to the server's disk"),
    ("DEBUG", "stops or ends the server"),
    ("LASTSAVE", "belongs to SAVE"),
    ("LATENCY", "times and events of all clients"),
    ("LOCKWHEEL", "only Lockwheel has it"),
    ("MEMORY DOCTOR", "text in our own words"),
    ("MEMORY MALLOC-STATS", "of the allocator"),
    ("MEMORY STATS", "each server counts its own memory"),
    ("MONITOR", "shows the requests of all clients"),
    ("MULTI", "the fuzzer begins transactions itself"),
    ("EXEC", "the fuzzer ends transactions itself"),
    ("DISCARD", "the fuzzer ends transactions itself"),
    ("PSYNC", "replication"),
    ("QUIT", "the end of a connection races with what was sent behind it"),
    ("REPLCONF", "replication"),
    ("REPLICAOF", "replication"),
    ("SAVE", "writes to the server's disk"),
    ("SHUTDOWN", "ends the server"),
    ("SLAVEOF", "replication"),
    ("SLOWLOG", "slow commands of all clients"),
    ("SYNC", "replication"),
];

/// Words that look like a number, an id, a range or a pattern, and may be invalid.
const ODD: &[&str] = &[
    "",
    "0",
    "-",
    "+",
    "*",
    "$",
    ">",
    "<",
    "(",
    "[",
    "(1",
    "[a",
    "(a",
    "[",
    "((1",
    "(nan",
    "(-inf",
    "+inf",
    "-nan",
    "-inf",
    "1e400",
    "-1e400",
    "1e-400",
    "0x1p4000",
    "0x",
    "1.",
    ".5",
    "5e",
    "0e0",
    "1_000",
    "\u{661}",
    "0-0",
    "0-1",
    "1-1",
    "5-0",
    "1-",
    "-1-1",
    "1-1-1",
    "1-*",
    "*-1",
    "*-*",
    "18446744073709551615-18446744073709551615",
    "18446744073709551616-0",
    "0-18446744073709551616",
    "9223372036854775806",
    "-9223372036854775807",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "1048577",
    "#0",
    "#-1",
    "u8",
    "i64",
    "u64",
    "i0",
    "u-1",
    "u63",
    "a b",
    "\r\n",
    "a\r\nb",
    "\0",
    "a\0b",
    "\u{ff}",
    "%s%n",
    "{}",
    "{a}",
    "{a",
    "@",
    "@x",
    "[^",
    "[a-",
    "[]",
    "\\",
    "h*",
    "?",
    "[^a]*",
    "**********a",
    "return 1",
    "return KEYS",
    "return {1, {2, 'x'}}",
    "return",
    "error('x')",
    "redis.call('get')",
    "#!lua",
    "#!lua name=lib",
    "#!lua flags=no-writes\nreturn 1",
    "#!lua name=lib\nredis.register_function('f1', function(keys, args) return {keys, args} end)",
    "#!lua name=lib\nredis.register_function{function_name='f2', callback=function(keys, args) \
     return redis.call(unpack(args)) end, flags={'no-writes'}}",
];

/// Names of members, fields, groups, consumers, channels, functions and libraries.
const NAMES: &[&str] =
    &["a", "b", "c", "f1", "f2", "g1", "g2", "c1", "c2", "lib", "v", "1", "2", "3", "10", "string"];

/// Requests that fill keys of every type, so that other requests find values.
const FILLING: &[&str] = &[
    "SET <s1> hello",
    "SET <s2> 10",
    "SET <n1> 7",
    "SET <n2> 1.5",
    "SET <k1> v PX 100000",
    "SET <k2> -9223372036854775808",
    "HSET <h1> f1 v f2 2 n 1.5",
    "HSET <h2> a 1",
    "RPUSH <l1> a b c 1 2",
    "RPUSH <l2> x",
    "SADD <t1> a b 1",
    "SADD <t2> 1 2 3",
    "ZADD <z1> 1 a 2 b 3.5 c",
    "ZADD <z2> -inf a inf b",
    "ZADD <y1> 0 a 0 b 0 c",
    "XADD <x1> 1-1 f1 v",
    "XADD <x1> 5-* f1 v f2 w",
    "XADD <x2> 7-7 a b",
    "XGROUP CREATE <x1> g1 0",
    "XGROUP CREATE <x2> g2 $ MKSTREAM",
    "XREADGROUP GROUP g1 c1 COUNT 2 STREAMS <x1> >",
    "PEXPIRE <h2> 100000",
];

/// The commands of a server: a name, or two words for a subcommand.
#[derive(Clone, Debug)]
pub struct Commands(Vec<Vec<String>>);

impl Commands {
    /// Reads the command table of a server.
    pub fn of(wire: &mut Wire) -> io::Result<Commands> {
        Ok(Commands::in_table(&wire.call(&["COMMAND"])?))
    }

    /// Reads a reply to `COMMAND`.
    pub fn in_table(table: &Frame) -> Commands {
        let name = |row: &Frame| row.items.first().map(|name| name.text.clone());
        let mut names = Vec::new();
        for row in &table.items {
            let children = row.items.get(9).map_or(&[][..], |children| &children.items);
            let rows = if children.is_empty() { std::slice::from_ref(row) } else { children };
            names.extend(rows.iter().filter_map(name));
        }
        let upper = |name: &Vec<u8>| String::from_utf8_lossy(name).to_uppercase();
        let mut names: Vec<String> = names.iter().map(upper).collect();
        names.sort();
        let words = |name: String| name.split('|').map(str::to_owned).collect::<Vec<_>>();
        Commands(names.into_iter().map(words).filter(|words| !is_excluded(words)).collect())
    }

    /// Returns the commands that another server has as well.
    pub fn shared_with(mut self, other: &Commands) -> Commands {
        self.0.retain(|words| other.0.contains(words));
        self
    }

    /// The number of commands.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

fn is_excluded<W: AsRef<[u8]>>(words: &[W]) -> bool {
    EXCLUDED.iter().any(|(name, _)| is_named(words, name))
}

/// The episode of this number.
pub fn episode(commands: &Commands, grammar: &Grammar, seed: u64, number: u64) -> Episode {
    let mut random = Random::of(seed, number);
    let protocol = if random.once_in(2) { 2 } else { 3 };
    let length = usize::try_from(random.between(STEPS.0, STEPS.1)).unwrap_or(1);
    let tracks = random.once_in(8);
    let mut maker =
        Maker { commands, grammar, random, tracks, steps: Vec::new(), in_multi: Vec::new() };
    for line in FILLING {
        maker.steps.push(Step::new('a', &line.split(' ').collect::<Vec<_>>()));
    }
    while maker.steps.len() < length {
        let client = if maker.random.once_in(30) { LISTENER } else { *maker.random.pick(&CLIENTS) };
        let most = if client == LISTENER { 2 } else { RUN_MAX };
        for _ in 0..=maker.random.below(most) {
            maker.add_steps(client);
        }
    }
    Episode { protocol, steps: maker.steps }
}

struct Maker<'a> {
    commands: &'a Commands,
    grammar: &'a Grammar,
    random: Random,
    /// Whether clients use tracking. The keys of a script for which they get invalidations depend
    /// on the version, so there are no scripts then.
    tracks: bool,
    steps: Vec<Step>,
    /// Clients that may be within a transaction.
    in_multi: Vec<char>,
}

impl Maker<'_> {
    fn add_steps(&mut self, client: char) {
        let in_multi = self.in_multi.contains(&client);
        if in_multi && self.random.once_in(8) {
            let name = if self.random.once_in(8) { "DISCARD" } else { "EXEC" };
            self.in_multi.retain(|other| *other != client);
            self.steps.push(Step::new(client, &[name]));
            return;
        }
        if !in_multi && client != LISTENER && self.random.once_in(20) {
            self.in_multi.push(client);
            self.steps.push(Step::new(client, &["MULTI"]));
            return;
        }
        if client != LISTENER && self.random.once_in(8) {
            let line = self.random.pick(FILLING);
            self.steps.push(Step::new(client, &line.split(' ').collect::<Vec<_>>()));
            return;
        }
        let words = loop {
            let words = self.draw(client, in_multi);
            let step = Step { client, words, pass: None };
            if step_is_safe(&step) {
                break step.words;
            }
        };
        let unsubscribes = words[0].to_ascii_lowercase().ends_with(b"unsubscribe");
        self.steps.push(Step { client, words, pass: None });
        if unsubscribes {
            // Without arguments there is one reply per channel: the reply to PING ends them.
            self.steps.push(Step::new(client, &["PING"]));
        }
    }

    fn draw(&mut self, client: char, in_multi: bool) -> Vec<Vec<u8>> {
        loop {
            let name = self.random.pick(&self.commands.0).clone();
            let is = |other: &str| is_named(&name, other);
            let subscribes = name[0].ends_with("SUBSCRIBE");
            let scripts = ["EVAL", "EVALSHA", "FCALL"].iter().any(|it| name[0].starts_with(it));
            let fits = match client {
                // A message that a client sends to itself may come before or after the reply.
                LISTENER => subscribes || is("PING") || is("GET") || is("RESET"),
                _ => !subscribes,
            };
            // These commands remove all data.
            let empties = name[0].starts_with("FLUSH") || is("SWAPDB") || is("SCRIPT FLUSH");
            let tracking = is("CLIENT TRACKING") || is("CLIENT CACHING");
            let odd = if self.tracks { scripts } else { tracking }
                || in_multi && (is("HELLO") || is("RESET"))
                || empties && !self.random.once_in(20);
            if !fits || odd {
                continue;
            }
            let words = self.arguments(&name);
            // A client that blocks for ever sends nothing more in the episode.
            if block_ms(&words) == Some(0.0) && !self.random.once_in(4) {
                continue;
            }
            let in_script = !self.tracks && client != LISTENER && self.random.once_in(4);
            return if in_script { self.script(words) } else { words };
        }
    }

    /// The command with random arguments.
    fn arguments(&mut self, name: &[String]) -> Vec<Vec<u8>> {
        let names: Vec<&str> = name.iter().map(String::as_str).collect();
        let forms: Vec<_> =
            self.grammar.forms().iter().filter(|form| form.begins_with(&names)).collect();
        if !forms.is_empty() && self.random.once_in(2) {
            let mut draw = Draw {
                grammar: self.grammar,
                short_leases: false,
                drew_short_lease: false,
                nested: true,
            };
            let mut words = self.random.pick(&forms).draw(&mut self.random, &mut draw);
            for _ in 0..self.random.below(3) {
                self.corrupt(&mut words, name.len());
            }
            return words;
        }
        let mut words: Vec<Vec<u8>> = name.iter().map(|word| word.clone().into_bytes()).collect();
        for _ in 0..self.random.below(ARGUMENTS_MAX + 1) {
            words.push(self.word());
        }
        words
    }

    /// Changes, inserts or removes a word after the name.
    fn corrupt(&mut self, words: &mut Vec<Vec<u8>>, name: usize) {
        let word = self.word();
        if words.len() <= name {
            words.push(word);
            return;
        }
        let at = name + self.random.below((words.len() - name) as u64) as usize;
        match self.random.below(6) {
            0 => drop(words.remove(at)),
            1 => words.insert(at, word),
            2 => words.push(word),
            3 => words.truncate(at),
            _ => words[at] = word,
        }
    }

    fn word(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        match random.below(200) {
            0..60 => {
                let keys: Vec<&str> = kinds::keys().collect();
                (*random.pick(&keys)).into()
            }
            60..100 => edge(random),
            100..130 => (*random.pick(ODD)).into(),
            130..135 => (*random.pick(&["default", "HELP"])).into(),
            135..165 => random.pick(self.grammar.options()).clone().into_bytes(),
            165..198 => (*random.pick(NAMES)).into(),
            198 => b"\xff\xfe\x00\x80".to_vec(),
            _ => match random.below(3) {
                0 => b"9".repeat(400),
                _ => b"x".repeat(LONG_BYTES),
            },
        }
    }

    /// A script that calls the command, unless the command depends on the client.
    fn script(&mut self, words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        // Some versions refuse blocking commands in scripts.
        if block_ms(&words).is_some() || is_named(&words, "WAIT") || may_differ(&words) {
            return words;
        }
        let name = if self.random.once_in(5) { "EVAL_RO" } else { "EVAL" };
        let script = *self.random.pick(CALLING);
        let head = [name, script, "0"].map(|word| word.as_bytes().to_vec());
        head.into_iter().chain(words).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Commands, episode};
    use crate::fuzz::episode::called;
    use crate::fuzz::grammar::Grammar;

    #[test]
    fn same_seed_gives_same_episodes() {
        let grammar = Grammar::sample();
        let names = ["GET", "SET", "XGROUP CREATE", "EVAL"];
        let words = |name: &&str| name.split(' ').map(str::to_owned).collect();
        let commands = Commands(names.iter().map(words).collect());
        let play = |seed, number| episode(&commands, &grammar, seed, number);
        assert_eq!(play(1, 2), play(1, 2));
        assert_ne!(play(1, 2), play(1, 3));
        let steps: Vec<_> = (0..20).flat_map(|number| play(1, number).steps).collect();
        assert!(steps.iter().any(|step| called(&step.words).is_some()));
    }
}
