//! Writes the report as JUnit XML for CI servers: one test suite per family, one test case per
//! case or property.

use std::fmt::Write;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::outcome::{Failure, Outcome, PROPERTIES, Verdict, merged};
use super::results::{Report, not_reached};

/// The report as JUnit XML.
pub(super) fn write(report: &Report) -> String {
    let mut document = quick_junit::Report::new(format!("lockwheel compat: {}", report.target));
    document.set_time(std::time::Duration::from_millis(report.elapsed_ms));
    for row in report.table().families {
        let mut suite = TestSuite::new(row.name.as_str());
        suite.add_property(("target", report.target.as_str()));
        if row.name == PROPERTIES {
            for (question, answer) in report.verdict() {
                suite.add_property((question, answer.as_str()));
            }
        }
        let family = report.outcomes.iter().filter(|it| it.family == row.name);
        suite.add_test_cases(family.map(|outcome| test_case(report, outcome)));
        document.add_test_suite(suite);
    }
    if let Some(ending) = report.explanation() {
        let mut suite = TestSuite::new("The run");
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status.set_message(ending);
        suite.add_test_case(TestCase::new("the run completes", status));
        document.add_test_suite(suite);
    }
    // Writing to memory cannot fail, and the text has no character that XML forbids.
    document.to_string().unwrap_or_default()
}

fn test_case(report: &Report, outcome: &Outcome) -> TestCase {
    let status = match &outcome.verdict {
        Verdict::Passed => TestCaseStatus::success(),
        Verdict::Failed(failures) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let first = failures.first().map(|it| format!("sent {}, came {}", it.sent, it.came));
            status.set_message(first.unwrap_or_default());
            if let Some(failure) = failures.first().filter(|failure| !failure.cause.is_empty()) {
                status.set_type(failure.cause.as_str());
            }
            status.set_description(description(outcome, failures));
            status
        }
        Verdict::Lacking(command) if report.allow_missing => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("the server lacks {command}"));
            status
        }
        Verdict::Lacking(command) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(format!("the server lacks {command}"));
            status
        }
        Verdict::Unknown(reason) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(reason.as_str());
            status
        }
        Verdict::Skipped(reason) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(reason.as_str());
            status
        }
        Verdict::NotReached => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(not_reached(report));
            status
        }
    };
    let mut case = TestCase::new(outcome.name.as_str(), status);
    case.set_classname(outcome.client.as_deref().unwrap_or(&outcome.family));
    case
}

fn description(outcome: &Outcome, failures: &[Failure]) -> String {
    let mut out = format!("{}\n", outcome.why);
    for (protocols, failure) in merged(failures) {
        let _ = writeln!(out, "\n{} {protocols}", failure.place(outcome));
        let _ = writeln!(out, "sent:      {}", failure.sent);
        let _ = writeln!(out, "expected:  {}", failure.expected);
        let _ = writeln!(out, "came:      {}", failure.came);
        if let Some(reference) = &failure.reference {
            let _ = writeln!(out, "reference: {reference}");
        }
        for line in &failure.story {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}
