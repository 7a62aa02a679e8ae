//! Which commands mean the same to two servers and harm neither. Only these are sent.

use super::episode::{Step, called};
use super::reference::is_named;

/// The shortest lease that does not end within an episode.
const FAR_MS: i64 = 90_000;

/// Offsets from this one make a server allocate too much memory for a test.
const LARGE: i64 = 100_000;

/// Whether a step means the same to two servers, and harms neither.
pub(super) fn step_is_safe(step: &Step) -> bool {
    if let Some(words) = called(&step.words) {
        return is_safe(words) && is_safe_with_any_arguments(words) && !has_short_lease(words);
    }
    !step.words.is_empty()
        && is_safe(&step.words)
        && is_safe_with_any_arguments(&step.words)
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

/// Whether a request means the same to two servers, for the exceptions that only random arguments
/// cause.
fn is_safe_with_any_arguments(words: &[Vec<u8>]) -> bool {
    let is = |name: &str| is_named(words, name);
    let number = |word: &Vec<u8>| std::str::from_utf8(word).ok()?.parse::<i64>().ok();
    // The result of a minimum idle time depends on the time of the request.
    let idle = |at: usize| words.get(at).and_then(number).is_some_and(|span| span > 0);
    if is("XCLAIM") || is("XAUTOCLAIM") {
        return !idle(4);
    }
    if is("XPENDING") {
        return !words[1..].iter().any(|word| word.eq_ignore_ascii_case(b"IDLE")) || !idle(4);
    }
    // Client ids differ between the servers.
    if is("CLIENT UNBLOCK") || is("CLIENT TRACKING") {
        let is_id = |word: &Vec<u8>| number(word).is_some_and(|id| (1..1 << 32).contains(&id));
        return !words.iter().any(is_id);
    }
    // Each server has its own settings.
    if is("CONFIG GET") {
        return !words.iter().any(|word| word.iter().any(|byte| b"*?[".contains(byte)));
    }
    true
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
pub(super) fn has_short_lease(words: &[Vec<u8>]) -> bool {
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
    use super::step_is_safe;
    use crate::fuzz::episode::Step;

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
