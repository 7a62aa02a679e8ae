//! The result of a run of the fuzzer.

use std::collections::BTreeMap;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The names and versions of the two servers.
    pub servers: [String; 2],
    /// The seed.
    pub seed: u64,
    /// The number of commands sent to each server.
    pub commands: usize,
    /// The number of episodes.
    pub episodes: u64,
    /// The duration of the run.
    pub seconds: f64,
    /// The differences, each kind once.
    pub found: Vec<FoundDifference>,
    /// How often each known difference occurred.
    pub explained: BTreeMap<&'static str, usize>,
}

/// A difference.
#[derive(Clone, Debug)]
pub struct FoundDifference {
    /// The command and how the replies begin: equal for differences of the same kind.
    pub signature: String,
    /// The first episode with this difference.
    pub episode: u64,
    /// The number of episodes with this difference.
    pub times: usize,
    /// Whether it appeared every time the episode was played again.
    pub repeats: bool,
    /// The shortest conversation that shows it, as a case that expects the replies of the
    /// reference.
    pub case: String,
}

impl Report {
    /// Whether the two servers differ only in known ways.
    pub fn is_green(&self) -> bool {
        self.found.is_empty()
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for found in &self.found {
            out.push_str(&format!(
                "{}\n# ObservedDifference in {} episodes.\n\n",
                found.case.trim_end(),
                found.times
            ));
        }
        for (name, times) in &self.explained {
            out.push_str(&format!("known: {name}: {times} times\n"));
        }
        let [target, reference] = &self.servers;
        out.push_str(&format!(
            "{} commands in {} episodes on {target} and {reference}, seed {}, {:.1} s: {}\n",
            self.commands,
            self.episodes,
            self.seed,
            self.seconds,
            match self.found.len() {
                0 => "no difference".to_owned(),
                count => format!("{count} differences"),
            },
        ));
        out
    }
}
