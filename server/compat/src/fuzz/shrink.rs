//! Shortens an episode in which two servers differ: fewer steps, then fewer and simpler words, as
//! long as the difference stays.

use std::io;

use super::episode::{Episode, Step};
use super::safety::step_is_safe;

/// The largest number of attempts to shorten an episode.
const ATTEMPTS_MAX: usize = 2_000;

/// Whether an episode still shows the difference.
pub type Shows<'s> = dyn FnMut(&Episode) -> io::Result<bool> + 's;

/// The shortest episode found. `episode` must show the difference.
pub fn shrink(episode: &Episode, shows: &mut Shows<'_>) -> io::Result<Episode> {
    let mut shrinking = Shrinking { best: episode.clone(), attempts: 0, shows };
    loop {
        let before = shrinking.best.clone();
        shrinking.remove_steps()?;
        shrinking.remove_words()?;
        shrinking.simplify_words()?;
        if shrinking.best == before || shrinking.attempts >= ATTEMPTS_MAX {
            return Ok(shrinking.best);
        }
    }
}

struct Shrinking<'s, 'f> {
    best: Episode,
    attempts: usize,
    shows: &'s mut Shows<'f>,
}

impl Shrinking<'_, '_> {
    /// Keeps these steps if they show the difference.
    fn adopt(&mut self, steps: Vec<Step>) -> io::Result<bool> {
        let sound = !steps.is_empty() && steps.iter().all(step_is_safe);
        if !sound || steps == self.best.steps || self.attempts >= ATTEMPTS_MAX {
            return Ok(false);
        }
        self.attempts += 1;
        let candidate = Episode { protocol: self.best.protocol, steps };
        let shown = (self.shows)(&candidate)?;
        if shown {
            self.best = candidate;
        }
        Ok(shown)
    }

    /// Removes ever smaller ranges of steps.
    fn remove_steps(&mut self) -> io::Result<()> {
        let mut size = self.best.steps.len().div_ceil(2);
        loop {
            // Steps are removed from the end, since later steps depend on earlier ones.
            let mut end = self.best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                let mut steps = self.best.steps.clone();
                steps.drain(start..end);
                self.adopt(steps)?;
                end = start.min(self.best.steps.len());
            }
            if size <= 1 {
                return Ok(());
            }
            size = size.div_ceil(2);
        }
    }

    /// Removes single words, and single lines of scripts.
    fn remove_words(&mut self) -> io::Result<()> {
        for at in (0..self.best.steps.len()).rev() {
            for word in (1..self.best.steps[at].words.len()).rev() {
                let mut steps = self.best.steps.clone();
                steps[at].words.remove(word);
                if self.adopt(steps)? {
                    continue;
                }
                self.remove_lines(at, word)?;
            }
        }
        Ok(())
    }

    fn remove_lines(&mut self, at: usize, word: usize) -> io::Result<()> {
        let text = |shrinking: &Self| shrinking.best.steps[at].words[word].clone();
        let count = text(self).split(|byte| *byte == b'\n').count();
        if count < 2 {
            return Ok(());
        }
        for line in (0..count).rev() {
            let whole = text(self);
            let mut lines: Vec<_> = whole.split(|byte| *byte == b'\n').collect();
            if line < lines.len() {
                lines.remove(line);
            }
            let mut steps = self.best.steps.clone();
            steps[at].words[word] = lines.join(&b'\n');
            self.adopt(steps)?;
        }
        Ok(())
    }

    /// Replaces words by simpler ones, and several clients by one.
    fn simplify_words(&mut self) -> io::Result<()> {
        const SIMPLE: [&[u8]; 4] = [b"1", b"a", b"0", b"<k1>"];
        for at in 0..self.best.steps.len() {
            if self.best.steps[at].client != 'a' {
                let mut steps = self.best.steps.clone();
                steps[at].client = 'a';
                self.adopt(steps)?;
            }
            for word in 1..self.best.steps[at].words.len() {
                if SIMPLE.contains(&&*self.best.steps[at].words[word]) {
                    continue;
                }
                for simple in SIMPLE {
                    let mut steps = self.best.steps.clone();
                    steps[at].words[word] = simple.to_vec();
                    if self.adopt(steps)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::fuzz::episode::{Episode, Step};
    use crate::fuzz::generate;
    use crate::fuzz::grammar::Grammar;

    /// The difference: `GET` after a `SET` with a lease by another client.
    #[test]
    fn only_relevant_words_are_left() {
        let grammar = Grammar::sample();
        let mut episode = generate::episode(&grammar, 7, 7);
        let set = ["SET", "<s1>", "hello world", "NX", "PX", "100000"];
        episode.steps.insert(20, Step::new('b', &set));
        episode.steps.insert(70, Step::new('c', &["GET", "<s1>"]));
        let mut shows = |episode: &Episode| {
            let is_set =
                |step: &Step| step.words[0] == b"SET" && step.words.contains(&b"PX".to_vec());
            let set = episode.steps.iter().position(is_set);
            let get = episode.steps.iter().rposition(|step| step.words[0] == b"GET");
            Ok(set.zip(get).is_some_and(|(set, get)| set < get))
        };
        let short = shrink(&episode, &mut shows).expect("nothing can fail");
        let lines: Vec<_> =
            short.steps.iter().map(|step| super::super::episode::command(&step.words)).collect();
        assert_eq!(lines, ["SET PX", "GET"]);
    }
}
