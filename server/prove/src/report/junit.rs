//! Writes the report as JUnit XML for CI servers: one test case per promise and kind of lock.

use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::results::{Report, Totals};
use super::text;
use super::verdict::{PROMISES, Promise};
use super::words::{counted, number, printable};

/// The report as JUnit XML.
pub(super) fn write(report: &Report) -> String {
    let name = if report.is_of_history() { "lockwheel judge" } else { "lockwheel prove" };
    let mut document = quick_junit::Report::new(name);
    let time = Duration::try_from_secs_f64(report.seconds).unwrap_or_default();
    document.set_time(time);
    let mut suite = TestSuite::new(name);
    suite.set_time(time);
    for (name, value) in [("target", &report.target), ("run", &report.run)] {
        suite.add_property((name, printable(value).as_str()));
    }
    suite.add_property(("seed", report.seed.to_string().as_str()));
    for (kind, totals) in &report.kinds {
        let cases = PROMISES.iter().map(|promise| test_case(report, promise, kind, totals));
        suite.add_test_cases(cases);
    }
    let figures = report.figures().into_iter().chain([report.unjudged()]);
    let notes = report.caveat().into_iter().chain(figures.map(|figure| figure.sentence()));
    let warnings = report.warnings.iter().map(|warning| printable(warning));
    suite.set_system_out(notes.chain(warnings).collect::<Vec<_>>().join("\n"));
    document.add_test_suite(suite);
    // Writing to memory cannot fail, and the text has no character that XML forbids.
    document.to_string().unwrap_or_default()
}

fn test_case(report: &Report, promise: &Promise, kind: &str, totals: &Totals) -> TestCase {
    let count = (promise.count)(totals);
    let status = if count > 0 {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
        let granted = counted(totals.granted, "grant", "grants");
        status.set_message(format!("{}: {} in {granted}", promise.broken, number(count)));
        let is_here = |case: &&_| promise.is_broken_by(case) && case.kind == kind;
        if let Some(case) = report.cases.iter().find(is_here) {
            status.set_type(case.cause.to_string());
            status.set_description(text::write_case(report, case));
        }
        status
    } else if totals.granted == 0 {
        let mut status = TestCaseStatus::skipped();
        status.set_message("no lock of this kind was granted");
        status
    } else {
        TestCaseStatus::success()
    };
    let mut case = TestCase::new(promise.sentence, status);
    case.set_classname(printable(kind));
    case
}

#[cfg(test)]
mod tests {
    use crate::report::{Format, sample};

    /// Whether each tag has its end, in the right order.
    fn is_well_formed(xml: &str) -> bool {
        let mut open = Vec::new();
        for tag in xml.split('<').skip(1) {
            let Some((tag, text)) = tag.split_once('>') else { return false };
            let name = tag.split([' ', '\n']).next().unwrap_or_default();
            match name.strip_prefix('/') {
                Some(name) if open.pop() != Some(name) => return false,
                None if !tag.ends_with(['/', '?']) => open.push(name),
                _ => {}
            }
            if text.contains('>') || open.is_empty() && !text.trim().is_empty() {
                return false;
            }
        }
        open.is_empty()
    }

    #[test]
    fn promise_fails_for_the_kind_of_lock_that_breaks_it() {
        let mut report = sample::report();
        report.cases[0].story[0].text = "GET <a> -> \"]]>&\"".to_owned();
        report.kinds[1].1 = super::Totals::default();
        let xml = report.write(Format::Junit);
        assert!(is_well_formed(&xml), "{xml}");
        assert!(xml.contains("tests=\"10\" skipped=\"5\" failures=\"2\""), "{xml}");
        assert!(xml.contains("message=\"Locks granted twice: 15 in 3,000 grants\""), "{xml}");
        assert!(xml.contains("type=\"a promoted replica lacked the write\""), "{xml}");
        assert!(xml.contains("&lt;a&gt;"), "{xml}");
        assert!(xml.contains("Not judged: 41 requests without a reply."), "{xml}");
    }

    #[test]
    fn run_without_a_fault_says_so() {
        let xml = sample::green().write(Format::Junit);
        assert!(xml.contains("<system-out>No fault took effect: "), "{xml}");
        assert!(xml.contains("failures=\"0\""), "{xml}");
        assert!(is_well_formed(&xml), "{xml}");
    }
}
