//! Attacks on a running server: for any input it must not panic, hang or lose a lock, and must
//! reply as `redis-server` does.
//!
//! The program `attack` runs them for a chosen time, `it/attack.rs` for some seconds. All use a
//! seed, so that a problem can be reproduced.

pub mod arguments;
pub mod attack_target;
pub mod connections;
pub mod restore;
pub mod sandbox;

/// The result of an attack. It passes if there are no problems.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Figures, a line each.
    pub figures: Vec<String>,
    /// The problems, each with the input that causes it.
    pub problems: Vec<String>,
}

/// The number of problems that are reported in full.
const PROBLEMS_MAX: usize = 40;

impl Report {
    /// Adds a problem.
    pub fn add_problem(&mut self, problem: String) {
        match self.problems.len() {
            0..PROBLEMS_MAX => self.problems.push(problem),
            PROBLEMS_MAX => self.problems.push("and more".to_owned()),
            _ => {}
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let lines = self.figures.iter().chain(&self.problems);
        lines.map(|line| format!("{line}\n")).collect()
    }
}
