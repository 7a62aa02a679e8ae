//! The failed cases of a report, grouped by the cause of their failures.

use std::cmp::Reverse;

use super::outcome::{Failure, Outcome, PROPERTIES, Verdict, whole_name};
use super::results::{Report, SHOWN_MAX, counted, short};

/// The number of cases that are named for each group.
const NAMES_MAX: usize = 3;
/// Characters of the longest request or reply in an example.
const EXAMPLE_CHARACTERS_MAX: usize = 60;

/// The notation of requests and replies.
pub(super) const NOTATION: &str = "\
Notation: a> SET <k> v is a request of client a, <k> a key of its own. Replies: +simple string,
-error, :integer, \"bulk string\", nil, [array], {map}; expected: :1..9 a range, _ anything, | or.";

/// Failed cases with the same cause.
#[derive(Clone, Debug)]
pub struct Group<'r> {
    /// The kind of difference between the expected and the received reply.
    pub cause: &'r str,
    /// The cases, each with its first failure.
    pub cases: Vec<(&'r Outcome, &'r Failure)>,
}

/// The failed cases as far as a report for people shows them.
pub(super) struct Shown<'r> {
    pub(super) groups: Vec<Group<'r>>,
    /// Whether each failed case is shown too.
    pub(super) each: bool,
    /// What is left out, and how to see it.
    pub(super) rest: Option<String>,
}

impl Group<'_> {
    /// The names of the first cases, as `--only` accepts them.
    pub(super) fn names(&self) -> Vec<String> {
        self.cases.iter().take(NAMES_MAX).map(|(outcome, _)| whole_name(outcome)).collect()
    }

    /// The request and the replies of the first case.
    pub(super) fn example(&self) -> String {
        let Some((_, Failure { sent, expected, came, .. })) = self.cases.first() else {
            return String::new();
        };
        let [sent, expected, came] =
            [sent, expected, came].map(|text| short(text, EXAMPLE_CHARACTERS_MAX));
        format!("{sent}  expected {expected}, came {came}")
    }
}

impl Report {
    /// The failed cases by the cause of their first failure, the largest group first.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for outcome in self.outcomes.iter().filter(|it| it.family != PROPERTIES) {
            let Verdict::Failed(failures) = &outcome.verdict else { continue };
            let Some(first) = failures.first() else { continue };
            match groups.iter_mut().find(|group| group.cause == first.cause) {
                Some(group) => group.cases.push((outcome, first)),
                None => groups.push(Group { cause: &first.cause, cases: vec![(outcome, first)] }),
            }
        }
        groups.sort_by_key(|group| Reverse(group.cases.len()));
        groups
    }

    /// The largest groups, and each case if there are few or all are asked for.
    pub(super) fn shown(&self) -> Shown<'_> {
        let count =
            |groups: &[Group<'_>]| groups.iter().map(|group| group.cases.len()).sum::<usize>();
        let mut groups = self.groups();
        let cases = count(&groups);
        if self.all || cases <= SHOWN_MAX {
            return Shown { groups, each: true, rest: None };
        }
        let others = groups.split_off(SHOWN_MAX.min(groups.len()));
        let left_out = match others.len() {
            0 => String::new(),
            causes => {
                let cases = counted(count(&others), "case", "cases");
                format!("{cases} of {}. ", counted(causes, "more cause", "more causes"))
            }
        };
        let rest = Some(format!("{left_out}--all shows each of the {cases} cases."));
        Shown { groups, each: false, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Outcome, Report, Verdict};
    use crate::report::{Format, Question};

    fn failed(name: &str, cause: &str) -> Outcome {
        let failure = Failure {
            sent: "a> GET <k>".to_owned(),
            expected: "\"v\"".to_owned(),
            came: "+v".to_owned(),
            cause: cause.to_owned(),
            ..Failure::default()
        };
        Outcome {
            family: "Strings".to_owned(),
            client: None,
            question: None,
            name: name.to_owned(),
            why: String::new(),
            place: "strings.txt".to_owned(),
            verdict: Verdict::Failed(vec![failure]),
        }
    }

    fn property(question: Question, name: &str, verdict: Verdict) -> Outcome {
        let family = crate::report::PROPERTIES.to_owned();
        Outcome { family, question: Some(question), verdict, ..failed(name, "") }
    }

    /// Twelve causes: the first of five cases, the second of two, the others of one.
    fn report(all: bool) -> Report {
        let name = |number: usize| match number {
            0..5 => 0,
            5..7 => 1,
            number => number - 5,
        };
        let case = |number| failed(&format!("case {number}"), &format!("cause {}", name(number)));
        Report { outcomes: (0..17).rev().map(case).collect(), all, ..Report::default() }
    }

    #[test]
    fn cases_are_grouped_by_cause_largest_group_first() {
        let report = report(false);
        let groups = report.groups();
        let sizes: Vec<_> = groups.iter().map(|it| (it.cause, it.cases.len())).collect();
        assert_eq!(sizes.len(), 12);
        assert_eq!(sizes[..3], [("cause 0", 5), ("cause 1", 2), ("cause 11", 1)]);
        let names = ["Strings: case 4", "Strings: case 3", "Strings: case 2"];
        assert_eq!(groups[0].names(), names);
        assert_eq!(groups[0].example(), "a> GET <k>  expected \"v\", came +v");
    }

    #[test]
    fn ten_groups_are_shown_and_with_all_each_case() {
        let text = report(false).text();
        assert!(text.contains("\n  5 cases: cause 0\n"), "{text}");
        assert!(
            text.contains("\n  2 cases of 2 more causes. --all shows each of the 17"),
            "{text}"
        );
        assert_eq!(text.matches("FAILED").count(), 0, "{text}");
        assert_eq!(text.matches("Notation: ").count(), 1, "{text}");
        let text = report(true).text();
        assert_eq!((text.matches("FAILED").count(), text.contains("--all")), (17, false), "{text}");
        let markdown = report(false).write(Format::Markdown);
        assert!(markdown.contains("\n| 5 | cause 0 |"), "{markdown}");
    }

    #[test]
    fn verdict_counts_properties_and_names_violations() {
        use Question::{HeldTwice, LostEarly, Missed, ReleasedByOthers};
        let unknown = || Verdict::Unknown("too slow".to_owned());
        let outcomes = vec![
            property(HeldTwice, "one", Verdict::Passed),
            property(HeldTwice, "two", unknown()),
            property(LostEarly, "three", Verdict::Failed(vec![Failure::default()])),
            property(LostEarly, "four", Verdict::Passed),
            property(ReleasedByOthers, "five", Verdict::NotReached),
            property(Missed, "six", Verdict::Failed(vec![Failure::default()])),
        ];
        let answers = |report: &Report| report.verdict().map(|(_, answer)| answer);
        let report = Report { outcomes, ..Report::default() };
        let [twice, early, others] = answers(&report);
        assert_eq!(twice, "no violation found in 1 property, 1 not decided");
        assert_eq!(early, "violation found: three");
        assert_eq!(others, "unknown: 1 property not decided");
        assert!(report.groups().is_empty());
        assert_eq!(answers(&Report::default()), ["not tried"; 3]);
        let text = report.text();
        assert!(text.starts_with("Can a lock be held twice?  "), "{text}");
        assert!(text.contains("FAILED  Properties under contention: six"), "{text}");
    }
}
