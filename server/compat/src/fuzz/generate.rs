//! Generates episodes from a seed: several clients that use the same few keys.

use std::time::Duration;

use super::draw::Draw;
use super::episode::{Episode, LISTENER, Step, WORKERS};
use super::grammar::Grammar;
use super::kinds::edge;
use super::safety::{has_short_lease, step_is_safe};
use crate::random::Random;

/// The range of the number of commands in an episode.
const STEPS: (i64, i64) = (100, 300);
/// The largest number of commands that a client sends in a row.
const RUN_MAX: u64 = 16;
/// Number of commands of which one is corrupted.
const CORRUPT_ONE_IN: u64 = 12;
/// The pause after a lease of a few milliseconds.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

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

#[cfg(test)]
mod tests {
    use super::episode;
    use crate::fuzz::grammar::Grammar;

    #[test]
    fn same_seed_gives_same_episodes() {
        let grammar = Grammar::sample();
        assert_eq!(episode(&grammar, 1, 2), episode(&grammar, 1, 2));
        assert_ne!(episode(&grammar, 1, 2), episode(&grammar, 1, 3));
        assert_ne!(episode(&grammar, 1, 2), episode(&grammar, 2, 2));
    }
}
