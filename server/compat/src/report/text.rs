//! Writes the report as text for a terminal.

use std::fmt::Write;

use super::groups::{NOTATION, Shown};
use super::outcome::{Failure, Outcome, PROPERTIES, Verdict, merged};
use super::results::{Report, counted, elapsed, short};
use super::table::{Row, Score};

/// The number of events shown before a failure.
const STORY_LINES: usize = 16;
/// Characters of the longest line; longer ones are cut.
const COLUMNS: usize = 160;
/// The headings of the table's columns.
const HEADINGS: [&str; 5] = ["passed", "failed", "lacking", "unknown", "not tried"];

/// Adds colours if the terminal shows them.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    fn doubtful(self, text: &str) -> String {
        self.wrap("33", text)
    }
}

/// The report as text.
pub(super) fn write(report: &Report, colours: bool) -> String {
    let paint = Paint(colours);
    let mut out = String::new();
    for (question, answer) in report.verdict() {
        let answer = match &*answer {
            bad if bad.starts_with("violation") => paint.bad(bad),
            good if !good.contains("not ") => paint.good(good),
            other => paint.doubtful(other),
        };
        let _ = writeln!(out, "{question:34} {answer}");
    }
    let summary = report.summary();
    let summary = if report.is_green() { paint.good(&summary) } else { paint.bad(&summary) };
    let _ = writeln!(out, "\n{summary} It took {}.\n", elapsed(report));
    let _ = writeln!(out, "{} at {}", report.target, report.address);
    if let Some(reference) = &report.reference {
        let _ = writeln!(out, "compared with {reference}");
    }
    if report.failures().next().is_some() {
        let _ = writeln!(out, "\n{NOTATION}");
    }
    let (properties, cases): (Vec<_>, Vec<_>) =
        report.outcomes.iter().partition(|outcome| outcome.family == PROPERTIES);
    if let Some(row) = report.table().families.iter().find(|row| row.name == PROPERTIES) {
        let (passed, tried) = (row.score.passed, row.score.tried());
        let _ = writeln!(out, "\n{PROPERTIES}: {passed} of {tried} passed");
    }
    properties.into_iter().for_each(|outcome| write_outcome(&mut out, outcome, paint));
    let shown = report.shown();
    write_groups(&mut out, &shown, paint);
    if shown.each {
        cases.into_iter().for_each(|outcome| write_outcome(&mut out, outcome, paint));
    }
    write_lacking(&mut out, report);
    out.push('\n');
    write_table(&mut out, report, paint);
    write_notices(&mut out, report);
    write_not_reached(&mut out, report);
    out
}

fn write_outcome(out: &mut String, outcome: &Outcome, paint: Paint) {
    match &outcome.verdict {
        Verdict::Failed(failures) => write_failure(out, outcome, failures, paint),
        Verdict::Unknown(reason) => {
            let title = format!("UNKNOWN  {}: {}", outcome.family, outcome.name);
            let _ = writeln!(out, "\n{}", paint.doubtful(&title));
            let _ = writeln!(out, "  where           {}", outcome.place);
            let _ = writeln!(out, "  reason          {reason}");
            let _ = writeln!(out, "  why it matters  {}", outcome.why);
        }
        _ => {}
    }
}

fn write_groups(out: &mut String, shown: &Shown<'_>, paint: Paint) {
    if shown.groups.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nFailed cases by cause");
    for group in &shown.groups {
        let cases = counted(group.cases.len(), "case", "cases");
        let _ = writeln!(out, "  {}", paint.bad(&format!("{cases}: {}", group.cause)));
        for line in [group.example(), group.names().join("; ")] {
            let _ = writeln!(out, "      {}", short(&line, COLUMNS));
        }
    }
    if let Some(rest) = &shown.rest {
        let _ = writeln!(out, "  {rest}");
    }
}

fn write_table(out: &mut String, report: &Report, paint: Paint) {
    let table = report.table();
    let rows = || table.families.iter().chain(&table.clients);
    let width = rows().map(|row| row.name.len() + 2).max().unwrap_or(0).max(12);
    // Empty columns are left out, except that of the passed cases.
    let shown: Vec<usize> =
        (0..HEADINGS.len()).filter(|&at| at == 0 || cells(&table.sum)[at] != "0").collect();
    let heading = |at: &usize| format!("{:>10}", HEADINGS[*at]);
    let headings: String = shown.iter().map(heading).collect();
    let _ = writeln!(out, "{:width$}{}", "", headings.trim_end());
    let mut line = |row: &Row, indent: &str| {
        let name = format!("{indent}{}", row.name);
        let cells = cells(&row.score);
        let cell = |at: &usize| match cells[*at].as_str() {
            "0" => format!("{:>10}", ""),
            cell => format!("{cell:>10}"),
        };
        let cells: String = shown.iter().map(cell).collect();
        let text = format!("{name:width$}{}", cells.trim_end());
        let score = &row.score;
        let text = match score {
            Score { failed: 1.., .. } | Score { lacking: 1.., .. } => paint.bad(&text),
            Score { unknown: 1.., .. } => paint.doubtful(&text),
            _ => text,
        };
        let _ = writeln!(out, "{}", text.trim_end());
    };
    table.families.iter().for_each(|row| line(row, ""));
    line(&Row { name: "All".to_owned(), score: table.sum }, "");
    if !table.clients.is_empty() {
        let heading = Row { name: "By client".to_owned(), score: Score::default() };
        line(&heading, "");
        table.clients.iter().for_each(|row| line(row, "  "));
    }
}

fn cells(score: &Score) -> [String; 5] {
    let passed = match score.tried() {
        0 if score.skipped == 0 => String::new(),
        tried => format!("{}/{tried}", score.passed),
    };
    let [failed, lacking, unknown, skipped] =
        [score.failed, score.lacking, score.unknown, score.skipped].map(|it| it.to_string());
    [passed, failed, lacking, unknown, skipped]
}

fn write_failure(out: &mut String, outcome: &Outcome, failures: &[Failure], paint: Paint) {
    for (protocols, failure) in merged(failures) {
        let client = outcome.client.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        let title = format!("FAILED  {}{client}: {}", outcome.family, outcome.name);
        let _ = writeln!(out, "\n{}", paint.bad(&title));
        let mut field = |name: &str, value: &str| {
            let _ = writeln!(out, "  {name:15} {}", short(value, COLUMNS));
        };
        let place = failure.place(outcome);
        let place = if protocols.is_empty() { place } else { format!("{place}, {protocols}") };
        field("where", &place);
        field("why it matters", &outcome.why);
        if !failure.sent.is_empty() {
            field("sent", &failure.sent);
        }
        field("expected", &failure.expected);
        field("came", &failure.came);
        if let Some(reference) = &failure.reference {
            field("reference said", reference);
        }
        write_story(out, failure, paint);
    }
}

fn write_story(out: &mut String, failure: &Failure, paint: Paint) {
    if failure.story.is_empty() {
        return;
    }
    // Only cases have line numbers, and only cases are conversations.
    let heading = match failure.number {
        Some(_) => "what happened (a> is what client a sends):",
        None => "what happened:",
    };
    let _ = writeln!(out, "  {}", paint.bold(heading));
    let hidden = failure.story.len().saturating_sub(STORY_LINES);
    if hidden > 0 {
        let _ = writeln!(out, "    ({hidden} lines before)");
    }
    for line in &failure.story[hidden..] {
        let _ = writeln!(out, "    {}", short(line, COLUMNS));
    }
}

fn write_lacking(out: &mut String, report: &Report) {
    let counts = report.lacking_counts();
    if counts.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nThe server lacks:");
    for (command, count) in counts {
        let cases = if count == 1 { "case needs" } else { "cases need" };
        let _ = writeln!(out, "  {command:24} {count:>4} {cases} it");
    }
}

fn write_not_reached(out: &mut String, report: &Report) {
    let (names, others) = report.not_reached_names();
    if !names.is_empty() {
        let _ = writeln!(out, "\nNot reached:");
    }
    for name in names {
        let _ = writeln!(out, "  {name}");
    }
    if others > 0 {
        let _ = writeln!(out, "  and {others} more: --all names them");
    }
}

fn write_notices(out: &mut String, report: &Report) {
    let skipped = report.skipped_counts();
    if report.notices.is_empty() && skipped.is_empty() {
        return;
    }
    out.push('\n');
    for notice in &report.notices {
        let _ = writeln!(out, "Note: {notice}.");
    }
    for (reason, count) in skipped {
        let _ = writeln!(out, "Not tried: {count}: {reason}.");
    }
}
