//! The verdict of a report: what the properties of a run say about three questions.

use super::outcome::{Question, Verdict};
use super::results::{Report, counted};

/// The questions of the verdict.
const VERDICT: [(Question, &str); 3] = [
    (Question::HeldTwice, "Can a lock be held twice?"),
    (Question::LostEarly, "Can a lock be lost early?"),
    (Question::ReleasedByOthers, "Can a lock be released by others?"),
];

impl Report {
    /// The three questions of the verdict, each with its answer.
    pub fn verdict(&self) -> [(&'static str, String); 3] {
        VERDICT.map(|(question, text)| (text, self.answer(question)))
    }

    fn answer(&self, question: Question) -> String {
        let (mut passed, mut undecided, mut failed) = (0, 0, Vec::new());
        for outcome in self.outcomes.iter().filter(|it| it.question == Some(question)) {
            match outcome.verdict {
                Verdict::Passed => passed += 1,
                Verdict::Failed(_) => failed.push(outcome.name.as_str()),
                _ => undecided += 1,
            }
        }
        let properties = |count| counted(count, "property", "properties");
        match (failed.is_empty(), passed, undecided) {
            (false, ..) => format!("violation found: {}", failed.join("; ")),
            (true, 0, 0) => "not tried".to_owned(),
            (true, 0, _) => format!("unknown: {} not decided", properties(undecided)),
            (true, _, 0) => format!("no violation found in {}", properties(passed)),
            (true, ..) => {
                format!("no violation found in {}, {undecided} not decided", properties(passed))
            }
        }
    }
}
