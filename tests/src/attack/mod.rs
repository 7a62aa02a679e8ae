//! Attacks on a running server: whatever is sent, it neither panics, nor hangs, nor loses a lock,
//! and answers as `redis-server` does.
//!
//! The program `attack` runs them for as long as wanted, `it/attack.rs` for some seconds. All of
//! them draw from a seed, so what was found can be found again.

pub mod arguments;
pub mod connections;
pub mod restore;
pub mod sandbox;
pub mod victim;

/// What an attack came to: whatever else it says, no line of `problems` is expected.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Figures, a line each.
    pub figures: Vec<String>,
    /// What should not have happened, each with what brings it about.
    pub problems: Vec<String>,
}

/// Problems that are told in full; of more it is only said that they are there.
const PROBLEMS_MAX: usize = 40;

impl Report {
    /// Notes a problem.
    pub fn problem(&mut self, problem: String) {
        match self.problems.len() {
            0..PROBLEMS_MAX => self.problems.push(problem),
            PROBLEMS_MAX => self.problems.push("and more".to_owned()),
            _ => {}
        }
    }

    /// It as text.
    pub fn text(&self) -> String {
        let lines = self.figures.iter().chain(&self.problems);
        lines.map(|line| format!("{line}\n")).collect()
    }
}
