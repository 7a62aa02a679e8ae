//! Writes `docs/compatibility.md` from the results of each server.

use std::fmt::Write;

use crate::results::{CaseProblem, FAULTS_IN_FULL, Results, Sum};
use crate::servers::Server;

const INTRODUCTION: &str = "# Compatibility

Results of `lockwheel compat`, the lock compatibility suite, on servers that speak the Redis
protocol. Its cases are conversations that hold on Redis 7.0, Redis 8.0 and Valkey 8.1: the
commands and scripts that lock libraries send, with every reply, error text, type and deadline,
and properties under contention. `tests/compatibility/run` writes this page;
[compat.md](compat.md) explains the suite.

A test double does not promise to be Redis. Each serves the purpose stated below. A given program
does not need much of what is counted here: the wording of an error, an administrative command,
the type of a reply that a client library converts to the same value. Read the rows of the client
library that you use. A score is the number of cases passed out of those tried; a case that needs
a command which the server lacks counts as tried and not passed. A cell without a score means that
none of the cases was tried; the section of the server says why.
";

const REPEAT: &str = "
## Running the suite

```sh
tests/compatibility/run                 # this page: every server that is available
tests/compatibility/run miniredis       # one of them; the page keeps the results of the others
tests/compatibility/run --list
```

[compat.md](compat.md) explains how to run the suite on your own server.

Lockwheel is built from this checkout; `redis-server` is the one on the path (Debian 12). The
servers of Debian 13 run with `chroot`, as root, in a folder that `LOCKWHEEL_TEST_DEBIAN_13`
names or that `--debootstrap` creates. The test doubles are small projects with pinned versions
below `tests/compatibility/`; if the tools of their language are missing, the page keeps its row.
Each server is started for the run, and flushing is allowed. Lockwheel, Redis and Valkey listen for
TLS on a second port, where the suite has a certificate of its own; the cases of the family TLS are
played there, and all others without TLS. The test doubles are started without TLS, so those cases
are not tried on them. A test double has 3 seconds for a reply, the others have 10. A server that
crashes or hangs is started again, and the case is listed.
";

/// The text of the page.
pub(crate) fn write(all: &[(&Server, Option<Results>)]) -> String {
    let mut out = INTRODUCTION.to_owned();
    write_overview(&mut out, all);
    out += "\n## By family\n";
    write_matrix(&mut out, "Family", all, |results| &results.families);
    out += "\n## By client library\n\nThe requests of each library's recipes.\n";
    write_matrix(&mut out, "Client", all, |results| &results.clients);
    for (server, results) in all {
        let _ = writeln!(out, "\n## {}\n\n{}", server.title, server.purpose);
        match results {
            Some(results) => write_server(&mut out, results),
            None => out += "\nIt was not run yet.\n",
        }
    }
    out + REPEAT
}

fn write_overview(out: &mut String, all: &[(&Server, Option<Results>)]) {
    out.push_str(
        "\n| Server | Version | Run on | passed | failed | missing command | undecided | \
         crashed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (server, results) in all {
        let Some(results) = results else {
            let _ = writeln!(out, "| {} | not run yet | | | | | | |", server.title);
            continue;
        };
        let Sum { lacking, unknown, .. } = results.all;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            server.title,
            results.version,
            results.date,
            score(&results.all),
            number(results.failed.len()),
            number(lacking),
            number(unknown),
            number(results.deaths.len())
        );
    }
}

/// Writes a table with a row per name and a column per server.
fn write_matrix(
    out: &mut String,
    heading: &str,
    all: &[(&Server, Option<Results>)],
    rows: impl Fn(&Results) -> &[Sum],
) {
    let run: Vec<_> =
        all.iter().filter_map(|(it, results)| Some((it, results.as_ref()?))).collect();
    let mut names: Vec<&str> = Vec::new();
    for sum in run.iter().flat_map(|(_, results)| rows(results)) {
        if !names.contains(&sum.name.as_str()) {
            names.push(&sum.name);
        }
    }
    let titles: Vec<_> = run.iter().map(|(server, _)| server.title).collect();
    let _ = writeln!(out, "\n| {heading} | {} |", titles.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(titles.len()));
    for name in names {
        let cell = |results: &&Results| {
            let sum = rows(results).iter().find(|sum| sum.name == name);
            sum.map_or_else(String::new, score)
        };
        let cells: Vec<_> = run.iter().map(|(_, results)| cell(results)).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
}

fn write_server(out: &mut String, results: &Results) {
    let Results { version, announces, date, seconds, .. } = results;
    let announced = match version == announces {
        true => String::new(),
        false => format!(" (it announces itself as: {announces})"),
    };
    let _ = writeln!(
        out,
        "\n{version}{announced}, on {date}, in {seconds} seconds: {} passed.",
        score(&results.all)
    );
    for notice in &results.notices {
        let _ = writeln!(out, "\nNote: {notice}.");
    }
    if !results.skipped.is_empty() {
        let reasons = results.skipped.iter().map(|(reason, count)| format!("{count}: {reason}"));
        let _ = writeln!(out, "\nNot tried: {}.", reasons.collect::<Vec<_>>().join("; "));
    }
    if !results.deaths.is_empty() {
        let _ = writeln!(out, "\nThe process crashed or stopped replying during:\n");
        for death in &results.deaths {
            let _ = writeln!(out, "- {death}");
        }
    }
    if !results.lacking.is_empty() {
        let commands =
            results.lacking.iter().map(|(command, count)| format!("`{command}` ({count})"));
        let commands = commands.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            out,
            "\nMissing commands, with the number of cases that need them: {commands}."
        );
    }
    for fault in &results.unknown {
        let _ = writeln!(out, "\nUndecided: {}: {}: {}.", fault.family, fault.name, fault.came);
    }
    if !results.kinds.is_empty() {
        let mut kinds: Vec<_> = results.kinds.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = writeln!(out, "\nKinds of wrong replies: {}.", kinds.join(", "));
    }
    write_faults(out, &results.failed);
}

fn write_faults(out: &mut String, faults: &[CaseProblem]) {
    if faults.is_empty() {
        return;
    }
    let in_full = faults.len() <= FAULTS_IN_FULL;
    let count = faults.len();
    if in_full {
        out.push_str("\nFailed cases:\n\n");
    } else {
        let summary = format!("Failed cases: {count}");
        let _ = writeln!(out, "\n<details><summary>{summary}</summary>\n");
    }
    let mut groups: Vec<(String, Vec<&CaseProblem>)> = Vec::new();
    for fault in faults {
        let client = fault.client.as_ref().map(|client| format!(", {client}"));
        let name = format!("{}{}", fault.family, client.unwrap_or_default());
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(fault),
            None => groups.push((name, vec![fault])),
        }
    }
    for (name, group) in groups {
        if in_full {
            for CaseProblem { name: case, expected, came, .. } in group {
                let (expected, came) = (code(expected), code(came));
                let _ = writeln!(out, "- {name}: {case}: {came} instead of {expected}");
            }
        } else {
            let names: Vec<_> = group.iter().map(|fault| fault.name.as_str()).collect();
            let _ = writeln!(out, "- **{name}** ({}): {}", group.len(), names.join("; "));
        }
    }
    if !in_full {
        out.push_str("\n</details>\n");
    }
}

fn score(sum: &Sum) -> String {
    if sum.tried == 0 { String::new() } else { format!("{}/{}", sum.passed, sum.tried) }
}

fn number(count: usize) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

/// Text as code in Markdown.
pub(crate) fn code(text: &str) -> String {
    // The spaces separate the signs from those of the text, and are not shown.
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::{CaseProblem, Results, Sum, write};
    use crate::servers::SERVERS;

    fn results(passed: usize, faults: usize) -> Results {
        let sum = |name: &str| Sum { name: name.to_owned(), passed, tried: 50, ..Sum::default() };
        let fault = CaseProblem {
            family: "Strings".to_owned(),
            name: "A value is kept".to_owned(),
            expected: "+OK".to_owned(),
            came: "nil".to_owned(),
            ..CaseProblem::default()
        };
        Results {
            version: "server 1".to_owned(),
            all: sum("All"),
            families: vec![sum("Strings")],
            clients: vec![sum("Redisson RLock")],
            failed: vec![fault; faults],
            ..Results::default()
        }
    }

    #[test]
    fn server_that_was_not_run_is_marked() {
        let known = [(&SERVERS[0], Some(results(50, 0))), (&SERVERS[1], None)];
        let page = write(&known);
        assert!(page.contains("| Lockwheel | server 1 |  | 50/50 |"), "{page}");
        assert!(page.contains("| Redis 7.0 | not run yet |"), "{page}");
        assert!(
            page.contains("\n| Family | Lockwheel |\n|---|---|\n| Strings | 50/50 |"),
            "{page}"
        );
        assert!(page.contains("\n| Redisson RLock | 50/50 |"), "{page}");
    }

    #[test]
    fn many_failures_are_listed_by_name_only() {
        let few = write(&[(&SERVERS[0], Some(results(49, 1)))]);
        assert!(few.contains("- Strings: A value is kept: `nil` instead of `+OK`"), "{few}");
        let many = write(&[(&SERVERS[0], Some(results(9, 41)))]);
        assert!(many.contains("- **Strings** (41): A value is kept; A value"), "{many}");
    }
}
