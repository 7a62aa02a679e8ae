//! Writes the report as text for a terminal.

use std::fmt::Write;

use super::columns::{COLUMNS, table, wrap};
use super::results::{Case, Report};
use super::tables::{self, PROOF, Rows};
use super::verdict::Figure;
use super::words::{counted, printable};

/// The report as text.
pub(super) fn write(report: &Report) -> String {
    let mut out = String::new();
    let figures = report.figures();
    let figures: Vec<_> = figures.iter().map(Figure::sentence).collect();
    for sentences in [report.caveat(), figures, vec![report.unjudged().sentence()]] {
        write_sentences(&mut out, &sentences);
    }
    if let Some(case) = report.cases.first() {
        let _ = writeln!(out, "\nThe worst case: {}", printable(&case.problem));
        out += &write_case(report, case);
    }
    write_causes(&mut out, report);
    if !report.faults.is_empty() {
        out += "\nFaults\n";
        if report.cases.is_empty() {
            paragraph(&mut out, &report.times_note(report.started_us));
        }
        write_table(&mut out, tables::faults(report));
    }
    out += "\nKinds of locks\n";
    write_table(&mut out, tables::kinds(report));
    write_list(&mut out, "Not exercised", &report.not_exercised);
    write_list(&mut out, "Warnings", &report.warnings);
    out.push('\n');
    for (name, value) in tables::run(report) {
        hanging(&mut out, &format!("{name:9}"), &value);
    }
    if let Some(reservation) = report.reservation() {
        let _ = writeln!(out, "\n{reservation}");
    }
    out
}

/// A case: where it happened, what led to it, and its cause.
pub(super) fn write_case(report: &Report, case: &Case) -> String {
    let mut out = String::new();
    paragraph(&mut out, &case.place());
    let times = report.times_note(case.at_us);
    paragraph(&mut out, &format!("{times} {PROOF} marks the lines that prove it."));
    out.push('\n');
    write_table(&mut out, tables::story(report, case));
    let _ = writeln!(out, "\nCause: {}", case.explanation());
    out
}

fn write_causes(out: &mut String, report: &Report) {
    if report.cases.len() < 2 {
        return;
    }
    out.push_str("\nViolations by cause\n");
    write_table(out, tables::causes(report));
    let others = tables::without_cause(report);
    if others > 0 {
        let violations = counted(others, "more violation", "more violations");
        let note = "counted without a cause. One failure can count in several columns.";
        paragraph(out, &format!("{violations}: {note}"));
    }
}

fn write_table(out: &mut String, mut rows: Rows) {
    rows.iter_mut().flatten().for_each(|cell| *cell = printable(cell));
    *out += &table(&rows);
}

fn write_list(out: &mut String, title: &str, sentences: &[String]) {
    if !sentences.is_empty() {
        let _ = writeln!(out, "\n{title}");
        sentences.iter().for_each(|sentence| hanging(out, "- ", sentence));
    }
}

/// Whole sentences on each line.
fn write_sentences(out: &mut String, sentences: &[String]) {
    let mut used = 0;
    for sentence in sentences {
        let separator = match used {
            0 => "",
            _ if used + 1 + sentence.len() <= COLUMNS => " ",
            _ => "\n",
        };
        used = if separator == " " { used + 1 } else { 0 } + sentence.len();
        let _ = write!(out, "{separator}{sentence}");
    }
    if used > 0 {
        out.push('\n');
    }
}

fn paragraph(out: &mut String, text: &str) {
    hanging(out, "", text);
}

/// A wrapped text whose lines are indented as far as the first, which begins with `head`.
fn hanging(out: &mut String, head: &str, text: &str) {
    let mut head = head.to_owned();
    for line in wrap(&printable(text), COLUMNS - head.len()) {
        let _ = writeln!(out, "{}", format!("{head}{line}").trim_end());
        head = " ".repeat(head.len());
    }
}

#[cfg(test)]
mod tests {
    use crate::report::{Format, sample};

    const EXPECTED: &str = r#"
Locks granted twice: 17 of 4,120. Locks lost early: 3. Longest time without a grant: 11.8 s.
Not judged: 41 requests without a reply.

The worst case: the lock is held twice at once
Two clients could rely on the lock lockwheel-prove:7f3a:set-nx:3 (set-nx), LOCK in the requests, at
once for 4.3 s.
Times are in UTC on 2026-11-30. * marks the lines that prove it.

   time          client    server          request and reply, or event
   12:00:20.500  client-2  127.0.0.1:7001  EVAL "compare, del" 1 lockwheel-prove:7f3a:set-nx:3 2-80
                                           -> 1
*  12:00:21.150  client-1  127.0.0.1:7001  SET lockwheel-prove:7f3a:set-nx:3 1-81 NX PX 10000 -> OK
   12:00:21.400  fault                     SIGKILL to process 4711
   12:00:21.430  observed  127.0.0.1:7001  does not answer: connection refused
   12:00:26.600  observed  127.0.0.1:7002  became the primary
*  12:00:26.900  client-5  127.0.0.1:7002  SET lockwheel-prove:7f3a:set-nx:3 5-17 NX PX 10000 -> OK

Cause: a promoted replica lacked the write (docs/prove.md#a-promoted-replica-lacked-the-write)

Violations by cause
count  problem                                         kind    cause
    2  the lock is held twice at once                  set-nx  a promoted replica lacked the write
    1  a holder is refused before its lease has ended  set-nx  unknown
17 more violations: counted without a cause. One failure can count in several columns.

Faults
time          length  fault                    effects
12:00:21.400  8.6 s   SIGKILL to process 4711  8 connections ended; 127.0.0.1:7002 became the
                                               primary
12:00:50.000          reported by the user     effect unknown

Kinds of locks
kind      granted  granted   lost     no
                     twice  early  reply
set-nx      3,000       15      3     40
redisson    1,120        2      0      1
all         4,120       17      3     41

Not exercised
- No server was suspended.

Warnings
- 12 requests got the error CLUSTERDOWN.

Target   redis://127.0.0.1:26379 (sentinel, primary mymaster)
Servers  redis 8.0.2 at 127.0.0.1:7001
         redis 8.0.2 at 127.0.0.1:7002
Run      7f3a
Seed     42
Started  2026-11-30 12:00:00.000 UTC
Length   60.0 s
Load     12,345 requests of 8 clients, at most 200 in a second, leases up to 10.0 s
"#;

    #[test]
    fn text_begins_with_the_verdict_and_tells_the_worst_case() {
        let text = sample::report().write(Format::Text);
        assert_eq!(text, EXPECTED.trim_start(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn nothing_found_is_no_proof() {
        let text = sample::green().write(Format::Text);
        let first = "No fault took effect: this run shows only that the servers work while nothing \
            fails.\nNo fault was injected.\nLocks granted twice: 0 of 4,120. ";
        assert!(text.starts_with(first), "{text}");
        assert!(
            text.ends_with(
                "\n\nNothing found is not a proof: a longer run, other faults or \
            another load may find something.\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn text_of_servers_does_not_reach_the_terminal() {
        let mut report = sample::report();
        let hostile = "\x1b[2J\r\u{9b}31m\u{202e}x";
        report.target = hostile.to_owned();
        report.servers = vec![hostile.to_owned()];
        report.faults[0].name = hostile.to_owned();
        report.cases[0].story[0].text = hostile.to_owned();
        report.cases[0].lock = hostile.to_owned();
        report.warnings = vec![hostile.to_owned()];
        for format in [Format::Text, Format::Json, Format::Junit, Format::Html] {
            let written = report.write(format);
            let raw = |char: char| char != '\n' && !super::super::words::is_visible(char);
            assert_eq!(written.find(raw), None, "{format:?}: {written}");
        }
    }

    #[test]
    fn history_has_no_dates_servers_and_faults() {
        let mut report = sample::report();
        report.run.clear();
        report.started_wall_us = 0;
        report.faults.clear();
        let text = report.write(Format::Text);
        assert!(text.starts_with("Locks granted twice: 17 of 4,120. Locks lost early: 3.\nNot"));
        assert!(text.contains("\nTimes are in microseconds since the first request. *"), "{text}");
        assert!(text.contains("\n*  26,900,000  client-5  "), "{text}");
        assert!(!text.contains("2026") && !text.contains("Seed"), "{text}");
        assert!(report.write(Format::Junit).contains("name=\"lockwheel judge\""));
    }
}
