//! Scripts and transactions are atomic: no other client runs in between or sees a partial result.

use super::arena::{Arena, ArenaClient, PropertyError, integer};
use super::property::Property;
use crate::report::Question;

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "A read and a write in a script are atomic",
        client: None,
        question: Question::HeldTwice,
        why: "Lock libraries check and take a lock in one script: if another client runs in \
              between, both take it.",
        run: |arena| increments_are_atomic(arena, &[IncrementBy::Script]),
    },
    Property {
        name: "The commands of a transaction are atomic",
        client: None,
        question: Question::HeldTwice,
        why: "Libraries without scripts set a lock and its lease, or compare and delete, between \
              MULTI and EXEC.",
        run: |arena| increments_are_atomic(arena, &[IncrementBy::Transaction]),
    },
    Property {
        name: "Scripts and transactions do not interleave",
        client: None,
        question: Question::HeldTwice,
        why: "Clients of several libraries share one lock: none may see partial changes.",
        run: |arena| increments_are_atomic(arena, &[IncrementBy::Script, IncrementBy::Transaction]),
    },
];

/// A script that reads a count and writes it back incremented, with a write in between that must
/// not be seen.
const SCRIPT: &str = "local count = tonumber(redis.call('get', KEYS[1]) or '0') \
    redis.call('set', KEYS[2], 'half') \
    redis.call('set', KEYS[1], count + 1) \
    redis.call('set', KEYS[2], count + 1) \
    return count + 1";

/// How a client increments the count.
#[derive(Clone, Copy)]
enum IncrementBy {
    Script,
    Transaction,
}

/// Checks that increments are atomic: some clients increment two keys together by these methods,
/// others read both.
fn increments_are_atomic(arena: &Arena<'_>, methods: &[IncrementBy]) -> Result<(), PropertyError> {
    let (left, right) = (arena.key("left"), arena.key("right"));
    arena.connect()?.call(&["MSET", &left, "0", &right, "0"])?;
    let writers = (arena.connections * 3 / 4).max(methods.len());
    let results =
        arena.run_clients(writers + (arena.connections / 4).max(2), |number, client| {
            let (mut incremented, mut reads) = (Vec::new(), 0_u64);
            while !arena.is_over() {
                match methods.get(number % methods.len()).filter(|_| number < writers) {
                    Some(methods) => incremented.push(methods.increment(client, &left, &right)?),
                    None => {
                        read_both(client, number, &left, &right)?;
                        reads += 1;
                    }
                }
            }
            Ok((incremented, reads))
        })?;
    let mut incremented: Vec<i64> =
        results.iter().flat_map(|(incremented, _)| incremented).copied().collect();
    let reads: u64 = results.iter().map(|(_, reads)| reads).sum();
    incremented.sort_unstable();
    let count = arena.connect()?.integer(&["GET", &left])?;
    let twice = incremented.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    if let Some(twice) = twice {
        let came = format!("two clients both incremented it from {} to {twice}", twice - 1);
        return Err(PropertyError::violated(
            "each client increments the current count",
            &came,
            Vec::new(),
        ));
    }
    let done = incremented.len();
    if usize::try_from(count) != Ok(done) {
        let expected = format!("{done}: the number of increments");
        return Err(PropertyError::violated(&expected, &count.to_string(), Vec::new()));
    }
    PropertyError::unknown_unless(done >= writers && reads > 0, || {
        format!("incremented {done} times, read {reads} times")
    })
}

impl IncrementBy {
    /// Increments the count and returns the new value.
    fn increment(
        self,
        client: &mut ArenaClient,
        left: &str,
        right: &str,
    ) -> Result<i64, PropertyError> {
        match self {
            IncrementBy::Script => client.integer(&["EVAL", SCRIPT, "2", left, right]),
            IncrementBy::Transaction => {
                let commands: [&[&str]; 4] =
                    [&["MULTI"], &["INCR", left], &["INCR", right], &["EXEC"]];
                let replies = client.pipeline(&commands)?;
                let incremented = replies.last().and_then(|reply| reply.items.first());
                let incremented =
                    incremented.ok_or_else(|| PropertyError::unknown("EXEC did nothing"))?;
                integer(&["EXEC"], incremented)
            }
        }
    }
}

/// Checks that both keys are equal, whichever command reads them together.
fn read_both(
    client: &mut ArenaClient,
    how: usize,
    left: &str,
    right: &str,
) -> Result<(), PropertyError> {
    let (sent, pair) = if how.is_multiple_of(2) {
        ("MGET", client.call(&["MGET", left, right])?)
    } else {
        let replies = client.pipeline(&[&["MULTI"], &["GET", left], &["GET", right], &["EXEC"]])?;
        let pair = replies.into_iter().next_back();
        ("MULTI, GET, GET, EXEC", pair.ok_or_else(|| PropertyError::unknown("no reply"))?)
    };
    match &pair.items[..] {
        [left, right] if left.as_text() == right.as_text() => Ok(()),
        _ => {
            let story = vec![format!("{sent}: {}", pair.notation())];
            let expected = "two keys that are always set together are equal";
            Err(PropertyError::violated(expected, &pair.notation(), story))
        }
    }
}
