//! Scripts and transactions happen all at once: nobody gets between, nobody sees them half-done.

use super::arena::{integer, text};
use super::{Arena, Client, Property, Trouble};

/// What is tried.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "A script's read and its write are one step",
        client: None,
        why: "Every lock library decides in a script whether a lock is free and takes it there: \
              if another client gets between the two, both take it.",
        run: |arena| counted(arena, &[Means::Script]),
    },
    Property {
        name: "A transaction's commands are one step",
        client: None,
        why: "Libraries without scripts set a lock and its lease, or compare and delete, between \
              MULTI and EXEC.",
        run: |arena| counted(arena, &[Means::Transaction]),
    },
    Property {
        name: "Scripts and transactions do not get between each other",
        client: None,
        why: "Clients of several libraries share one lock: each must see the others' steps whole.",
        run: |arena| counted(arena, &[Means::Script, Means::Transaction]),
    },
];

/// Reads a count and writes it back one higher, with other writes between that are wrong half-way.
const SCRIPT: &str = "local count = tonumber(redis.call('get', KEYS[1]) or '0') \
    redis.call('set', KEYS[2], 'half') \
    redis.call('set', KEYS[1], count + 1) \
    redis.call('set', KEYS[2], count + 1) \
    return count + 1";

/// How a client raises the count.
#[derive(Clone, Copy)]
enum Means {
    Script,
    Transaction,
}

/// Clients raise two keys together by these means; between them others look at both.
fn counted(arena: &Arena<'_>, means: &[Means]) -> Result<(), Trouble> {
    let (left, right) = (arena.key("left"), arena.key("right"));
    arena.connect()?.call(&["MSET", &left, "0", &right, "0"])?;
    let writers = (arena.connections * 3 / 4).max(means.len());
    let results = arena.crowd(writers + (arena.connections / 4).max(2), |number, client| {
        let (mut raised, mut looked) = (Vec::new(), 0_u64);
        while !arena.is_over() {
            match means.get(number % means.len()).filter(|_| number < writers) {
                Some(means) => raised.push(means.raise(client, &left, &right)?),
                None => {
                    look(client, number, &left, &right)?;
                    looked += 1;
                }
            }
        }
        Ok((raised, looked))
    })?;
    let mut raised: Vec<i64> = results.iter().flat_map(|(raised, _)| raised).copied().collect();
    let looked: u64 = results.iter().map(|(_, looked)| looked).sum();
    raised.sort_unstable();
    let count = arena.connect()?.integer(&["GET", &left])?;
    let twice = raised.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    if let Some(twice) = twice {
        let came = format!("two clients both raised it from {} to {twice}", twice - 1);
        return Err(Trouble::broken("each raises the count from where it was", &came, Vec::new()));
    }
    let done = raised.len();
    if usize::try_from(count) != Ok(done) {
        let expected = format!("{done}: so often was it raised");
        return Err(Trouble::broken(&expected, &count.to_string(), Vec::new()));
    }
    if done < writers || looked == 0 {
        return Err(Trouble::unknown(format!("raised {done} times, looked at {looked} times")));
    }
    Ok(())
}

impl Means {
    /// Raises the count and returns what it was raised to.
    fn raise(self, client: &mut Client, left: &str, right: &str) -> Result<i64, Trouble> {
        match self {
            Means::Script => client.integer(&["EVAL", SCRIPT, "2", left, right]),
            Means::Transaction => {
                let commands: [&[&str]; 4] =
                    [&["MULTI"], &["INCR", left], &["INCR", right], &["EXEC"]];
                let replies = client.pipeline(&commands)?;
                let raised = replies.last().and_then(|reply| reply.items.first());
                let raised = raised.ok_or_else(|| Trouble::unknown("EXEC did nothing"))?;
                integer(&["EXEC"], raised)
            }
        }
    }
}

/// Both keys are equal however one looks at them together.
fn look(client: &mut Client, how: usize, left: &str, right: &str) -> Result<(), Trouble> {
    let (sent, pair) = if how.is_multiple_of(2) {
        ("MGET", client.call(&["MGET", left, right])?)
    } else {
        let replies = client.pipeline(&[&["MULTI"], &["GET", left], &["GET", right], &["EXEC"]])?;
        let pair = replies.into_iter().next_back();
        ("MULTI, GET, GET, EXEC", pair.ok_or_else(|| Trouble::unknown("no reply"))?)
    };
    match &pair.items[..] {
        [left, right] if text(left) == text(right) => Ok(()),
        _ => {
            let story = vec![format!("{sent}: {}", pair.notation())];
            let expected = "two keys that are always set together are equal";
            Err(Trouble::broken(expected, &pair.notation(), story))
        }
    }
}
