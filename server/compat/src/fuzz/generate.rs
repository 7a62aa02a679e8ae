//! Generates episodes from a seed: several clients that use the same few keys.

use std::time::Duration;

use super::arguments;
use super::episode::{Episode, Step};
use super::grammar::Grammar;
use super::kinds::{Draw, edge};
use super::reference::is_named;
use crate::random::Random;

/// The range of the number of commands in an episode.
const STEPS: (i64, i64) = (100, 300);
/// The largest number of commands that a client sends in a row.
const RUN_MAX: u64 = 16;
/// One command in this many is corrupted.
const CORRUPT_ONE_IN: u64 = 12;
/// The pause after a lease of a few milliseconds.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
/// The shortest lease that does not end within an episode.
const FAR_MS: i64 = 90_000;
/// Offsets from this one make a server allocate too much memory for a test.
const LARGE: i64 = 100_000;

/// Clients that send all commands but subscriptions.
pub const WORKERS: [char; 3] = ['a', 'b', 'c'];
/// The client that subscribes.
pub const LISTENER: char = 's';

/// The episode of this number.
pub fn episode(grammar: &Grammar, seed: u64, number: u64) -> Episode {
    let mut random = Random::of(seed, number);
    let protocol = if random.once_in(2) { 2 } else { 3 };
    let length = usize::try_from(random.between(STEPS.0, STEPS.1)).unwrap_or(1);
    let tracks = random.once_in(4);
    let mut maker = Maker { grammar, random, tracks, steps: Vec::new(), in_multi: Vec::new() };
    while maker.steps.len() < length {
        let client = match maker.random.below(10) {
            0 => LISTENER,
            _ => *maker.random.pick(&WORKERS),
        };
        let most = if client == LISTENER { 2 } else { RUN_MAX };
        for _ in 0..=maker.random.below(most) {
            maker.add_steps(client);
        }
    }
    Episode { protocol, steps: maker.steps }
}

struct Maker<'a> {
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
        let ends = in_multi && self.random.once_in(6);
        if ends {
            let name = if self.random.once_in(6) { "DISCARD" } else { "EXEC" };
            self.in_multi.retain(|other| *other != client);
            self.steps.push(Step::new(client, &[name]));
            return;
        }
        if !in_multi && client != LISTENER && self.random.once_in(40) {
            self.in_multi.push(client);
            self.steps.push(Step::new(client, &["MULTI"]));
            return;
        }
        let step = self.draw(client, in_multi);
        let unsubscribes = step.words[0].to_ascii_lowercase().ends_with(b"unsubscribe");
        self.steps.push(step);
        if unsubscribes {
            // Without arguments there is one reply per channel: the reply to PING ends them.
            self.steps.push(Step::new(client, &["PING"]));
        }
    }

    /// A command that means the same to two servers.
    fn draw(&mut self, client: char, in_multi: bool) -> Step {
        loop {
            let form = self.grammar.pick(&mut self.random);
            let subscribes = form.name().ends_with("SUBSCRIBE");
            let fits = match client {
                LISTENER => subscribes || form.name() == "PING" || self.random.once_in(100),
                _ => !subscribes,
            };
            // A message that a client sends to itself comes before the reply, or since 7.2 after
            // it.
            let publishes = form.name().ends_with("PUBLISH") || form.name().starts_with("EVAL");
            let echoes = client == LISTENER && publishes;
            let tracking = form.begins_with(&["CLIENT", "TRACKING"])
                || form.begins_with(&["CLIENT", "CACHING"]);
            let odd = if self.tracks { form.name().starts_with("EVAL") } else { tracking }
                || in_multi && form.name() == "HELLO";
            if !fits || echoes || odd || matches!(form.name(), "MULTI" | "EXEC" | "DISCARD") {
                continue;
            }
            let mut draw = Draw {
                grammar: self.grammar,
                short_leases: !in_multi,
                drew_short_lease: false,
                nested: false,
            };
            let mut words = form.draw(&mut self.random, &mut draw);
            let mut pass = draw.drew_short_lease.then_some(SHORT_PAUSE);
            if self.random.once_in(CORRUPT_ONE_IN) {
                corrupt(&mut words, &mut self.random);
            }
            if pass.is_some() && !has_short_lease(&words) {
                pass = None;
            }
            let step = Step { client, words, pass };
            if step_is_safe(&step) {
                return step;
            }
        }
    }
}

/// Changes a random word of a command, which may make it invalid.
fn corrupt(words: &mut Vec<Vec<u8>>, random: &mut Random) {
    if words.len() < 2 {
        words.push(edge(random));
        return;
    }
    let places: Vec<usize> = (1..words.len()).collect();
    let (at, other) = (*random.pick(&places), *random.pick(&places));
    match random.below(6) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[other].clone()),
        2 => words.swap(at, other),
        3 => words.insert(at, edge(random)),
        4 => words.truncate(at),
        _ => words[at] = edge(random),
    }
}

/// Whether a step means the same to two servers, and harms neither.
pub(super) fn step_is_safe(step: &Step) -> bool {
    if let Some(words) = arguments::called(&step.words) {
        return is_safe(words) && arguments::is_safe(words) && !has_short_lease(words);
    }
    !step.words.is_empty()
        && is_safe(&step.words)
        && arguments::is_safe(&step.words)
        && (step.pass.is_some() || !has_short_lease(&step.words))
}

/// The same for a command, without its leases.
pub(super) fn is_safe(words: &[Vec<u8>]) -> bool {
    let is = |name: &str| is_named(words, name);
    // Client ids differ between the servers.
    let names_client = words.iter().any(|word| word.starts_with(b"$id-"));
    if names_client && (!is("CLIENT UNBLOCK") || words[1].starts_with(b"$id-")) {
        return false;
    }
    // The order in which all channels are left is random.
    if words.len() < 2 && words[0].to_ascii_lowercase().ends_with(b"unsubscribe") {
        return false;
    }
    // A number of a lock script may be a lease, and how Lua prints it depends on the version.
    if words.len() > 1 && words[1].starts_with(b"@") && is_any(words, &["EVAL", "EVALSHA"]) {
        return words[2..].iter().skip(1).all(|word| lua_takes_as_text_or_far(word));
    }
    // There are no replicas to wait for.
    if is("WAIT") {
        return words.get(1).and_then(|word| number(word)).is_none_or(|count| count <= 0);
    }
    // The channels of other clients are not part of the episode.
    if is_any(words, &["PUBSUB"]) && words.len() < 3 {
        return false;
    }
    // A page that is not the whole depends on the server.
    let cursor = if is("SCAN") { 1 } else { 2 };
    if ["SCAN", "HSCAN", "SSCAN", "ZSCAN"].iter().any(|name| is(name)) {
        let at = words.iter().rposition(|word| word.eq_ignore_ascii_case(b"COUNT"));
        let count = at.and_then(|at| words.get(at + 1)).and_then(|word| number(word));
        return words.get(cursor).is_some_and(|it| it == b"0")
            && count.is_some_and(|it| it >= 1000);
    }
    // Each server has its own table of commands.
    if is("COMMAND") && words.len() < 2 {
        return false;
    }
    let mut numbers = words[1..].iter().filter_map(|word| number(word));
    // The removed member is random, unless all are removed.
    if is("SPOP") {
        return words.len() != 2 && numbers.all(|count| count <= 0 || count >= 1000);
    }
    // Some servers would build the whole reply.
    if ["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"].iter().any(|name| is(name)) {
        return numbers.all(|count| count > -1000);
    }
    if ["SETRANGE", "SETBIT", "BITFIELD"].iter().any(|name| is(name)) {
        return numbers.all(|offset| !(LARGE..1 << 32).contains(&offset));
    }
    // The order of unsorted or equal elements is random.
    if is("SORT") || is("SORT_RO") {
        let mut words = words.iter().skip_while(|word| !word.eq_ignore_ascii_case(b"BY"));
        let by = words.nth(1);
        let alpha = words.any(|word| word.eq_ignore_ascii_case(b"ALPHA"));
        return by.is_none_or(|by| by.contains(&b'*') && !alpha);
    }
    if !lex_is_specified(words) {
        return false;
    }
    // An id made from the clock differs between the servers.
    if is("XADD") {
        return !words.contains(&b"*".to_vec());
    }
    // A time-out is either for ever or so short that it is waited for.
    match block_ms(words) {
        Some(span) => !(20.0..100_000.0).contains(&span) || span == 0.0,
        None => true,
    }
}

/// Whether a script cannot use an argument as a short lease, nor as a number that is rounded.
fn lua_takes_as_text_or_far(word: &[u8]) -> bool {
    let text = String::from_utf8_lossy(word).trim().to_lowercase();
    let far = FAR_MS..FAR_MS * 10_000;
    match text.parse::<i64>() {
        Ok(number) => {
            !text.starts_with('+') && text != "-0" && (number <= 0 || far.contains(&number))
        }
        Err(_) => !text.starts_with("0x") && text.parse::<f64>().is_err(),
    }
}

fn is_any(words: &[Vec<u8>], names: &[&str]) -> bool {
    let name = words[0].to_ascii_uppercase();
    names.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// `BYLEX` ranges are specified only for sets with equal scores: these have keys of their own, with
/// score 0.
fn lex_is_specified(words: &[Vec<u8>]) -> bool {
    const READING: [&str; 8] =
        ["ZREM", "ZCARD", "ZSCORE", "ZRANK", "TYPE", "ZRANGE", "PTTL", "DEL"];
    let is = |name: &str| is_named(words, name);
    let is_lex_key = |word: &Vec<u8>| word.starts_with(b"<y");
    let by_lex = words.iter().any(|word| word.eq_ignore_ascii_case(b"BYLEX"))
        || ["ZLEXCOUNT", "ZRANGEBYLEX", "ZREVRANGEBYLEX", "ZREMRANGEBYLEX"].iter().any(|it| is(it));
    let source = if is("ZRANGESTORE") { 2 } else { 1 };
    if by_lex {
        return words.get(source).is_some_and(is_lex_key) && !words[2..].iter().any(is_lex_key)
            || words.len() < 3
            || is("ZRANGESTORE") && words.get(2).is_some_and(is_lex_key) && !is_lex_key(&words[1]);
    }
    if !words.iter().any(is_lex_key) {
        return true;
    }
    let scores = words.iter().skip(2).step_by(2);
    READING.iter().any(|name| is(name))
        || is("ZADD") && words.len() > 3 && scores.into_iter().all(|score| score == b"0")
}

/// A word as a number, with or without `#` before it.
fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.trim_start_matches('#').parse().ok()
}

/// Whether a command gives a lease that might end while the episode is played.
fn has_short_lease(words: &[Vec<u8>]) -> bool {
    let is = |name: &str| is_named(words, name);
    let short = |at: usize, unit_ms: i64| {
        let span = words.get(at).and_then(|word| number(word));
        span.is_some_and(|span| span > 0 && span < FAR_MS / unit_ms)
    };
    let behind = |name: &[u8], unit_ms: i64| {
        let mut places = words.iter().enumerate();
        places.any(|(at, word)| word.eq_ignore_ascii_case(name) && short(at + 1, unit_ms))
    };
    if is("SETEX") || is("EXPIRE") {
        return short(2, 1000);
    }
    if is("PSETEX") || is("PEXPIRE") {
        return short(2, 1);
    }
    (is("SET") || is("GETEX")) && (behind(b"EX", 1000) || behind(b"PX", 1))
}

/// The time-out of a blocking command in milliseconds; 0 is for ever. `None` if it does not block.
pub(super) fn block_ms(words: &[Vec<u8>]) -> Option<f64> {
    let is = |name: &str| is_named(words, name);
    let seconds = |word: Option<&Vec<u8>>| {
        let text = std::str::from_utf8(word?).ok()?;
        // A word that is not a number is refused at once.
        Some(text.parse().map_or(0.0, |seconds: f64| seconds * 1000.0))
    };
    let last = ["BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX"];
    if last.iter().any(|name| is(name)) {
        return seconds(words.last());
    }
    if is("BLMPOP") || is("BZMPOP") {
        return seconds(words.get(1));
    }
    if is("XREAD") || is("XREADGROUP") {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(b"BLOCK"))?;
        return seconds(words.get(at + 1)).map(|span| span / 1000.0);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{episode, step_is_safe};
    use crate::fuzz::episode::Step;
    use crate::fuzz::grammar::Grammar;

    #[test]
    fn same_seed_gives_same_episodes() {
        let grammar = Grammar::sample();
        assert_eq!(episode(&grammar, 1, 2), episode(&grammar, 1, 2));
        assert_ne!(episode(&grammar, 1, 2), episode(&grammar, 1, 3));
        assert_ne!(episode(&grammar, 1, 2), episode(&grammar, 2, 2));
    }

    #[test]
    fn ambiguous_commands_are_not_generated() {
        let safe = |line: &str| step_is_safe(&Step::new('a', &line.split(' ').collect::<Vec<_>>()));
        for line in [
            "SPOP s",
            "SPOP s 2",
            "SRANDMEMBER s -4294967297",
            "SETBIT s 4294967295 1",
            "SET k v PX 5",
            "SETEX k 1 v",
            "BLPOP l 1.5",
            "XREAD BLOCK 500 STREAMS x $",
            "XADD x * f v",
        ] {
            assert!(!safe(line), "{line}");
        }
        for line in ["SPOP s 1000", "SET k v PX 100000", "BLPOP l 0", "BLPOP l 0.001", "GET k"] {
            assert!(safe(line), "{line}");
        }
    }
}
