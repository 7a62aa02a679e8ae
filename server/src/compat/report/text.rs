//! The report for a terminal.

use std::fmt::Write;

use super::{Report, Verdict};

/// Writes it.
pub(super) fn write(report: &Report) -> String {
    let mut out = format!("{}\n", report.target);
    for outcome in &report.outcomes {
        let verdict = match &outcome.verdict {
            Verdict::Passed => continue,
            Verdict::Failed(_) => "failed".to_owned(),
            Verdict::Lacking(command) => format!("lacks {command}"),
            Verdict::Skipped(reason) => format!("skipped: {reason}"),
            Verdict::Unknown(reason) => format!("unknown: {reason}"),
        };
        let _ = writeln!(out, "{}: {}: {verdict}", outcome.family, outcome.name);
    }
    for (outcome, failure) in report.failures() {
        let number = failure.number.unwrap_or_default();
        let _ = writeln!(out, "\n{}:{number} {}", outcome.place, outcome.name);
        let _ = writeln!(out, "  sent      {}", failure.sent);
        let _ = writeln!(out, "  expected  {}", failure.expected);
        let _ = writeln!(out, "  came      {}", failure.came);
        if let Some(reference) = &failure.reference {
            let _ = writeln!(out, "  reference {reference}");
        }
        let _ = writeln!(out, "  why       {}", outcome.why);
    }
    let passed = report.outcomes.iter().filter(|it| matches!(it.verdict, Verdict::Passed)).count();
    let _ = writeln!(out, "\n{passed} of {} passed", report.outcomes.len());
    out
}
