//! Writes the report as a page: one file without scripts, which requests nothing.

use std::fmt::Write;

use super::results::{Case, Report};
use super::tables::{self, PROOF, Rows};
use super::timeline::{self, Timeline};
use super::verdict::PROMISES;
use super::words::{counted, html, size};

const STYLE: &str = include_str!("html.css");

/// What the page may load: nothing. Its style is within it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The sign of Lockwheel.
const SIGN: &str = "<svg class=\"sign\" viewBox=\"0 0 24 24\" aria-hidden=\"true\">\
    <circle cx=\"12\" cy=\"12\" r=\"9\"/><circle cx=\"12\" cy=\"12\" r=\"2.5\"/>\
    <path d=\"M12 3v6.5M12 14.5V21M3 12h6.5M14.5 12H21\"/></svg>";

/// The report as HTML.
pub(super) fn write(report: &Report) -> String {
    let command = if report.is_of_history() { "lockwheel judge" } else { "lockwheel prove" };
    let target = html(&report.target);
    let headline = headline(report);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{headline} - {command}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>{SIGN}<p>{command}</p><p class=\"target\">{target}</p></header>\n<main>\n"
    );
    let caveat = report.caveat().join(" ");
    if !caveat.is_empty() {
        let _ = writeln!(out, "<p class=\"caveat\">{caveat}</p>");
    }
    let state = match report.is_green() {
        true if caveat.is_empty() => "good",
        true => "doubtful",
        false => "bad",
    };
    let _ = writeln!(out, "<h1 class=\"{state}\">{headline}</h1>\n<dl class=\"figures\">");
    for figure in report.figures().iter().chain([&report.unjudged()]) {
        let class = if figure.is_bad { " class=\"bad\"" } else { "" };
        let (label, value) = (figure.label, html(&figure.value));
        let _ = writeln!(out, "<div{class}><dt>{label}</dt><dd>{value}</dd></div>");
    }
    out += "</dl>\n";
    if let Some(reservation) = report.reservation() {
        let _ = writeln!(out, "<p>{reservation}</p>");
    }
    write_worst(&mut out, report);
    write_others(&mut out, report);
    if !report.faults.is_empty() {
        out += "<section><h2>Faults</h2>\n";
        if report.cases.is_empty() {
            let _ = writeln!(out, "<p>{}</p>", report.times_note(report.started_us));
        }
        write_table(&mut out, &tables::faults(report));
        out += "</section>\n";
    }
    out += "<section><h2>Kinds of locks</h2>\n";
    write_table(&mut out, &tables::kinds(report));
    out += "</section>\n";
    write_list(&mut out, "Not exercised", &report.not_exercised);
    write_list(&mut out, "Warnings", &report.warnings);
    write_run(&mut out, report);
    out + "</main>\n</body>\n</html>\n"
}

/// What was found, in a line.
fn headline(report: &Report) -> String {
    let broken = PROMISES.iter().filter(|promise| (promise.count)(&report.totals) > 0);
    let mut found: Vec<String> = broken.map(|promise| promise.broken.to_owned()).collect();
    if let [_, others @ ..] = &mut found[..] {
        others.iter_mut().for_each(|it| *it = it.to_lowercase());
    }
    if found.is_empty() { "Nothing found".to_owned() } else { found.join(", ") }
}

fn write_worst(out: &mut String, report: &Report) {
    let Some(case) = report.cases.first() else { return };
    let problem = html(&case.problem);
    let _ = writeln!(out, "<section><h2>The worst case: {problem}</h2>");
    let _ = writeln!(out, "<p>{}</p>", html(&case.place()));
    if let Some(Timeline { svg, events, hidden }) = timeline::draw(report, case) {
        let _ = writeln!(out, "<figure>{svg}");
        out.push_str("<figcaption>A bar is the time in which a client could rely on the lock.");
        let _ = writeln!(out, " A dot is a reply that proves the violation.</figcaption>");
        if !events.is_empty() {
            out.push_str("<ul class=\"events\" aria-label=\"Numbered events\">\n");
            for event in events {
                let class = if event.is_fault { " class=\"fault\"" } else { "" };
                let (mark, time) = (event.mark, report.time(event.from_us));
                let text = html(&event.text);
                let _ = writeln!(
                    out,
                    "<li><b{class}>{mark}</b> <time>{time}</time> <span>{text}</span></li>"
                );
            }
            out.push_str("</ul>");
        }
        if hidden > 0 {
            let events = counted(size(hidden), "more event", "more events");
            let _ = writeln!(out, "<p>{events}: see the JSON report.</p>");
        }
        out.push_str("</figure>\n");
    }
    write_story(out, report, case);
    out.push_str("</section>\n");
}

/// The story as a table, and the cause.
fn write_story(out: &mut String, report: &Report, case: &Case) {
    let times = report.times_note(case.at_us);
    let _ = writeln!(out, "<p>{times} {PROOF} marks the lines that prove it.</p>");
    write_table(out, &tables::story(report, case));
    let (cause, anchor) = (case.cause, case.cause.anchor());
    let _ = writeln!(
        out,
        "<p class=\"cause\"><strong>Cause: {cause}.</strong> It is explained in \
         <code>docs/prove.md#{anchor}</code>.</p>"
    );
}

fn write_others(out: &mut String, report: &Report) {
    let [_, others @ ..] = &report.cases[..] else { return };
    if others.is_empty() {
        return;
    }
    out.push_str("<section><h2>Violations by cause</h2>\n");
    write_table(out, &tables::causes(report));
    let without_cause = tables::without_cause(report);
    if without_cause > 0 {
        let violations = counted(without_cause, "more violation", "more violations");
        let note = "counted without a cause. One failure can count in several columns.";
        let _ = writeln!(out, "<p>{violations}: {note}</p>");
    }
    for case in others {
        let summary = format!("{} {}: {}", report.time(case.at_us), case.lock, case.problem);
        let _ = writeln!(out, "<details><summary>{}</summary>", html(&summary));
        let _ = writeln!(out, "<p>{}</p>", html(&case.place()));
        write_story(out, report, case);
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

/// A table, which is a list of cards on a narrow screen; the roles keep its meaning there.
fn write_table(out: &mut String, rows: &Rows) {
    let Some((headings, rows)) = rows.split_first() else { return };
    out.push_str("<table role=\"table\"><thead role=\"rowgroup\"><tr role=\"row\">");
    for heading in headings {
        let heading = if heading.is_empty() { "proof" } else { heading };
        let _ = write!(out, "<th role=\"columnheader\" scope=\"col\">{}</th>", html(heading));
    }
    out.push_str("</tr></thead>\n<tbody role=\"rowgroup\">\n");
    for row in rows {
        let is_proof = row.first().is_some_and(|cell| cell == PROOF);
        let class = if is_proof { " class=\"proof\"" } else { "" };
        let _ = write!(out, "<tr role=\"row\"{class}>");
        for (heading, cell) in headings.iter().zip(row) {
            let (heading, cell) = (html(heading), html(cell));
            let _ = write!(out, "<td role=\"cell\" data-label=\"{heading}\">{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

fn write_list(out: &mut String, title: &str, sentences: &[String]) {
    if sentences.is_empty() {
        return;
    }
    let _ = writeln!(out, "<section><h2>{title}</h2>\n<ul>");
    for sentence in sentences {
        let _ = writeln!(out, "<li>{}</li>", html(sentence));
    }
    out.push_str("</ul></section>\n");
}

fn write_run(out: &mut String, report: &Report) {
    out.push_str("<section><h2>The run</h2>\n<dl class=\"run\">\n");
    for (name, value) in tables::run(report) {
        if !name.is_empty() {
            let _ = write!(out, "<dt>{name}</dt>");
        }
        let _ = writeln!(out, "<dd>{}</dd>", html(&value));
    }
    out.push_str("</dl></section>\n");
}

#[cfg(test)]
mod tests {
    use crate::report::{Format, sample};

    #[test]
    fn page_shows_the_worst_case_as_a_picture() {
        let page = sample::report().write(Format::Html);
        assert_eq!(page.matches("<rect class=\"hold\"").count(), 3, "{page}");
        assert_eq!(page.matches("<rect class=\"twice\"").count(), 2, "{page}");
        assert_eq!(page.matches("<circle class=\"proof\"").count(), 2, "{page}");
        assert_eq!(page.matches("<rect class=\"fault\"").count(), 1, "{page}");
        assert_eq!(page.matches("<g class=\"change\">").count(), 5, "{page}");
        assert!(page.contains("held twice: 4.3 s"), "{page}");
        assert!(page.contains("<h1 class=\"bad\">Locks granted twice, locks lost early</h1>"));
        assert!(page.contains("<dt>Locks granted twice</dt><dd>17 of 4,120</dd>"), "{page}");
        assert!(page.contains("docs/prove.md#a-promoted-replica-lacked-the-write"), "{page}");
    }

    #[test]
    fn picture_has_no_room_for_very_many_events() {
        let mut report = sample::report();
        let change = report.observations[0].clone();
        report.observations.extend(vec![change; 30]);
        let page = report.write(Format::Html);
        assert_eq!(page.matches("<g class=\"change\">").count(), 23, "{page}");
        assert_eq!(page.matches("<g class=\"fault\">").count(), 1, "{page}");
        assert!(page.contains("<p>12 more events: see the JSON report.</p>"), "{page}");
    }

    #[test]
    fn page_requests_nothing() {
        for report in [sample::report(), sample::green()] {
            let page = report.write(Format::Html);
            for loading in ["<script", "http:", "https:", "@import", "src="] {
                assert!(!page.contains(loading), "{loading}");
            }
            assert_eq!(page.matches("url(").count(), page.matches("url(#").count());
        }
    }

    #[test]
    fn text_from_outside_is_no_markup() {
        let mut report = sample::report();
        let hostile = "<script>alert('&')</script>\"";
        report.target = hostile.to_owned();
        report.servers.push(hostile.to_owned());
        report.run = hostile.to_owned();
        report.kinds[0].0 = hostile.to_owned();
        report.warnings.push(hostile.to_owned());
        report.not_exercised.push(hostile.to_owned());
        report.faults[0].name = hostile.to_owned();
        report.faults[0].effects.push(hostile.to_owned());
        report.observations[0].server = hostile.to_owned();
        for case in &mut report.cases {
            case.problem = hostile.to_owned();
            case.kind = hostile.to_owned();
            case.lock = hostile.to_owned();
            case.holds[0].client = hostile.to_owned();
            for line in &mut case.story {
                line.actor = hostile.to_owned();
                line.text = hostile.to_owned();
                line.server = hostile.to_owned();
            }
        }
        let page = report.write(Format::Html);
        assert!(!page.contains("<script") && !page.contains("alert('"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&#39;&amp;&#39;)"), "{page}");
    }

    #[test]
    fn run_without_a_fault_says_so_first() {
        let page = sample::green().write(Format::Html);
        let main = page.split("<main>").nth(1).expect("the content");
        assert!(main.starts_with("\n<p class=\"caveat\">No fault took effect: "), "{main}");
        assert!(main.contains("Nothing found is not a proof"), "{main}");
    }
}
