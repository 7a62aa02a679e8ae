//! The verdict of a report: its figures and sentences.

use lockwheel_compat::judge::ViolationKind;

use super::results::{Case, Report, Totals};
use super::words::{counted, number, size, span};

/// A promise of locks.
pub(super) struct Promise {
    /// It as a sentence.
    pub(super) sentence: &'static str,
    /// What breaks it, as a label of a figure.
    pub(super) broken: &'static str,
    /// The same in a column.
    pub(super) heading: &'static str,
    /// How often it was broken.
    pub(super) count: fn(&Totals) -> u64,
    /// The violation in the words of the judge.
    kind: ViolationKind,
}

/// The promises that are judged, the most important first.
pub(super) const PROMISES: [Promise; 5] = [
    Promise {
        sentence: "no lock is granted twice",
        broken: "Locks granted twice",
        heading: "granted twice",
        count: |totals| totals.granted_twice,
        kind: ViolationKind::DoubleGrant,
    },
    Promise {
        sentence: "no lock is lost early",
        broken: "Locks lost early",
        heading: "lost early",
        count: |totals| totals.lost_early,
        kind: ViolationKind::EarlyLoss,
    },
    Promise {
        sentence: "no lock is renewed or released by others",
        broken: "Locks renewed or released by others",
        heading: "used by others",
        count: |totals| totals.used_by_others,
        kind: ViolationKind::NotHolder,
    },
    Promise {
        sentence: "no fencing token is wrong",
        broken: "Wrong fencing tokens",
        heading: "wrong tokens",
        count: |totals| totals.wrong_tokens,
        kind: ViolationKind::Token,
    },
    Promise {
        sentence: "no count of holds is wrong",
        broken: "Wrong counts of holds",
        heading: "wrong counts",
        count: |totals| totals.wrong_counts,
        kind: ViolationKind::Count,
    },
];

impl Promise {
    /// Whether the case breaks it.
    pub(super) fn is_broken_by(&self, case: &Case) -> bool {
        case.problem == self.kind.to_string()
    }
}

/// A figure of the verdict.
pub(super) struct Figure {
    pub(super) label: &'static str,
    pub(super) value: String,
    pub(super) is_bad: bool,
}

impl Report {
    /// One word for all.
    pub(super) fn verdict(&self) -> &'static str {
        if self.is_green() { "nothing found" } else { "found" }
    }

    /// What makes the verdict worth less than it seems, as sentences that come before it.
    pub(super) fn caveat(&self) -> Vec<String> {
        if self.totals.granted == 0 {
            return vec!["No lock was granted: this shows nothing.".to_owned()];
        }
        if self.has_effective_fault() || self.is_of_history() {
            return Vec::new();
        }
        let caveat = match (self.faults.is_empty(), self.is_green()) {
            (true, true) => {
                "No fault took effect: this run shows only that the servers work while nothing \
                 fails."
            }
            (true, false) => {
                "No fault took effect: what was found happened while nothing was made to fail."
            }
            (false, true) => {
                "No fault is known to have taken effect: this may show only that servers work \
                 while nothing fails."
            }
            (false, false) => "No fault is known to have taken effect.",
        };
        let injected = match self.faults.len() {
            0 => "No fault was injected.".to_owned(),
            count => format!("{} injected.", counted(size(count), "fault was", "faults were")),
        };
        vec![caveat.to_owned(), injected]
    }

    /// The verdict on one line.
    pub fn summary(&self) -> String {
        let figures = self.figures().into_iter().map(|figure| figure.sentence());
        self.caveat().into_iter().chain(figures).collect::<Vec<_>>().join(" ")
    }

    /// The figures. Those of rare violations are left out if they are zero.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (at, promise) in PROMISES.iter().enumerate() {
            let count = (promise.count)(&self.totals);
            let value = match at {
                0 => format!("{} of {}", number(count), number(self.totals.granted)),
                _ => number(count),
            };
            if at < 2 || count > 0 {
                figures.push(Figure { label: promise.broken, value, is_bad: count > 0 });
            }
        }
        let refused = self.totals.free_refused;
        if refused > 0 {
            let value = number(refused);
            figures.push(Figure { label: "Free locks refused", value, is_bad: false });
        }
        if !self.is_of_history() {
            let label = "Longest time without a grant";
            let value = span(self.longest_without_grant_us);
            figures.push(Figure { label, value, is_bad: false });
        }
        figures
    }

    /// What a report without a finding does not show.
    pub(super) fn reservation(&self) -> Option<&'static str> {
        let reservation = match self.is_of_history() {
            true => "Nothing found is not a proof: another history may show something.",
            false => {
                "Nothing found is not a proof: a longer run, other faults or another load may find \
                 something."
            }
        };
        self.is_green().then_some(reservation)
    }

    /// What was not judged.
    pub(super) fn unjudged(&self) -> Figure {
        let value =
            counted(self.totals.unanswered, "request without a reply", "requests without a reply");
        Figure { label: "Not judged", value, is_bad: false }
    }
}

impl Figure {
    /// It as a sentence.
    pub(super) fn sentence(&self) -> String {
        format!("{}: {}.", self.label, self.value)
    }
}

impl Case {
    /// Where it happened, and for how long.
    pub(super) fn place(&self) -> String {
        let Case { lock, kind, .. } = self;
        match self.overlap_us {
            0 => format!("The lock is {lock} ({kind}), LOCK in the requests."),
            _ => format!(
                "Two clients could rely on the lock {lock} ({kind}), LOCK in the requests, at once \
                 for {}.",
                span(self.overlap_us)
            ),
        }
    }

    /// Its cause, with the place that explains it.
    pub(super) fn explanation(&self) -> String {
        format!("{} (docs/prove.md#{})", self.cause, self.cause.anchor())
    }
}

#[cfg(test)]
mod tests {
    use crate::report::sample;

    #[test]
    fn caveat_says_what_is_known_of_the_faults() {
        let mut report = sample::report();
        let caveat = |report: &super::Report| report.caveat().join(" ");
        let check = |report: &super::Report, begin: &str, end: &str| {
            let caveat = caveat(report);
            assert!(caveat.starts_with(begin) && caveat.ends_with(end), "{caveat}");
            assert!(report.summary().starts_with(&caveat), "{}", report.summary());
        };
        assert_eq!(caveat(&report), "");
        report.faults.iter_mut().for_each(|fault| fault.effects.clear());
        let unknown = "No fault is known to have taken effect";
        check(&report, &format!("{unknown}. "), "2 faults were injected.");
        report.faults.clear();
        let none = "No fault was injected.";
        check(&report, "No fault took effect: what was found happened while", none);

        let mut report = sample::green();
        check(&report, "No fault took effect: this run shows only that", none);
        report.faults = sample::report().faults.drain(1..).collect();
        check(&report, &format!("{unknown}: "), " 1 fault was injected.");
        report.totals.granted = 0;
        check(&report, "No lock was granted", "this shows nothing.");
        report.faults = sample::report().faults;
        check(&report, "No lock was granted", "this shows nothing.");
    }

    #[test]
    fn figures_of_rare_violations_are_shown_if_there_are_any() {
        let mut report = sample::green();
        let labels = |report: &super::Report| {
            report.figures().iter().map(|it| it.label).collect::<Vec<_>>().join(", ")
        };
        let usual = "Locks granted twice, Locks lost early, Longest time without a grant";
        assert_eq!(labels(&report), usual);
        report.totals.wrong_tokens = 1;
        report.totals.free_refused = 1;
        let more = "Locks granted twice, Locks lost early, Wrong fencing tokens, \
            Free locks refused, Longest time without a grant";
        assert_eq!(labels(&report), more);
    }
}
