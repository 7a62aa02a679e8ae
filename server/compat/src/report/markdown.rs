//! Writes the report as Markdown, for a pull request or a page.

use std::fmt::Write;

use super::groups::{NOTATION, Shown};
use super::outcome::{Failure, Outcome, PROPERTIES, Verdict, merged};
use super::results::{Report, elapsed, short};
use super::table::Row;

/// Maximum length of a value or a line, in characters. Longer ones are cut.
const VALUE_CHARACTERS_MAX: usize = 400;

/// The report as Markdown.
pub(super) fn write(report: &Report) -> String {
    let mut out = format!("## {}\n\n", escaped(&report.target));
    for (question, answer) in report.verdict() {
        let _ = writeln!(out, "- {question} {}", escaped(&answer));
    }
    let _ =
        write!(out, "\n{} `{}`, {}", escaped(&report.summary()), report.address, elapsed(report));
    if let Some(reference) = &report.reference {
        let _ = write!(out, ", compared with {}", escaped(reference));
    }
    let table = report.table();
    out += ".\n";
    let shown = report.shown();
    if report.failures().next().is_some() {
        let _ = writeln!(out, "\n{}", escaped(NOTATION));
    }
    // Properties before cases.
    for is_property in [true, false] {
        if !is_property {
            write_groups(&mut out, &shown);
        }
        let of_kind = |it: &&Outcome| (it.family == PROPERTIES) == is_property;
        for outcome in report.outcomes.iter().filter(of_kind) {
            if let Verdict::Failed(failures) = &outcome.verdict
                && (is_property || shown.each)
            {
                write_failure(&mut out, outcome, failures);
            }
        }
    }
    write_table(&mut out, "Family", &table.families);
    write_table(&mut out, "Client", &table.clients);
    write_rest(&mut out, report);
    out
}

fn write_groups(out: &mut String, shown: &Shown<'_>) {
    if shown.groups.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n| Failed cases | Cause | For example |\n|---|---|---|");
    for group in &shown.groups {
        let (count, cause) = (group.cases.len(), escaped(group.cause));
        let _ = writeln!(out, "| {count} | {cause} | {} |", escaped(&group.names().join("; ")));
    }
    if let Some(rest) = &shown.rest {
        let _ = writeln!(out, "\n{rest}");
    }
}

fn write_table(out: &mut String, kind: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n| {kind} | passed | failed | lacking | unknown | not tried |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for Row { name, score } in rows {
        let number = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        let _ = writeln!(
            out,
            "| {} | {}/{} | {} | {} | {} | {} |",
            escaped(name),
            score.passed,
            score.tried(),
            number(score.failed),
            number(score.lacking),
            number(score.unknown),
            number(score.skipped)
        );
    }
}

fn write_failure(out: &mut String, outcome: &Outcome, failures: &[Failure]) {
    for (protocols, failure) in merged(failures) {
        let client = outcome.client.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        let title = format!("{}{client}: {}", outcome.family, outcome.name);
        let _ = writeln!(out, "\n### Failed: {}\n", escaped(&title));
        let _ = writeln!(out, "{}\n", escaped(&outcome.why));
        let mut field = |name: &str, value: &str| {
            let _ = writeln!(out, "- {name}: {}", code_span(&short(value, VALUE_CHARACTERS_MAX)));
        };
        field("where", &failure.place(outcome));
        if !protocols.is_empty() {
            field("protocol", &protocols);
        }
        field("sent", &failure.sent);
        field("expected", &failure.expected);
        field("came", &failure.came);
        if let Some(reference) = &failure.reference {
            field("the reference said", reference);
        }
        if !failure.story.is_empty() {
            let _ = writeln!(out, "\n<details><summary>What happened</summary>\n");
            for line in &failure.story {
                let _ = writeln!(out, "    {}", short(line, VALUE_CHARACTERS_MAX));
            }
            let _ = writeln!(out, "\n</details>");
        }
    }
}

/// Writes a list of the unknown cases, the missing commands, the notices and the skipped cases.
fn write_rest(out: &mut String, report: &Report) {
    let mut lines = Vec::new();
    for outcome in &report.outcomes {
        if let Verdict::Unknown(reason) = &outcome.verdict {
            lines.push(format!("Unknown: {}: {}: {reason}", outcome.family, outcome.name));
        }
    }
    for (command, count) in report.lacking_counts() {
        lines.push(format!("Lacks {command}, which {count} need"));
    }
    lines.extend(report.notices.iter().cloned());
    let (names, others) = report.not_reached_names();
    lines.extend(names.into_iter().map(|name| format!("Not reached: {name}")));
    if others > 0 {
        lines.push(format!("Not reached: {others} more, which --all names"));
    }
    for (reason, count) in report.skipped_counts() {
        lines.push(format!("Not tried: {count}: {reason}"));
    }
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        let _ = writeln!(out, "- {}", escaped(&line));
    }
}

/// Escapes the characters that have a meaning in Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if "\\`*_[]<>|#".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

/// A code span: delimited by more backticks than the text contains in a row.
fn code_span(text: &str) -> String {
    let mut fence = "`".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}
