//! Writes `docs/clients.md`: the matrix of the libraries, a section per language, and the results
//! of the libraries' own suites, which are run by hand. A run of some suites replaces their parts
//! of the page and keeps the rest.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use lockwheel_tests::suites::ServerProgram;
use lockwheel_tests::suites::report::{self, Comparison, TestResults, TestStatus};

const TITLE: &str = "# Client libraries

Published lock libraries and clients, unmodified. The suite of each library runs on Lockwheel and
on a real `redis-server` and asserts the properties of a lock: no two clients hold it, its lease
ends at its time and not before, and only its holder can release it. `tests/clients/run` writes
this page.
";

const MATRIX: &str = "
| Language | Library | Version | Redis | Lockwheel |
|---|---|---|---|---|
";

const REPEAT: &str = "
## Running the suites

```sh
tests/clients/run                # every suite
tests/clients/run rust go        # some of them; the page keeps the results of the others
tests/clients/run --only-lockwheel java
tests/clients/run --list
```

The command starts Lockwheel and a `redis-server` on free ports. A suite is reported as skipped
if the tools of its language are missing. `tests/clients/README.md` explains how to write a
suite.
";

/// The section on the suites that libraries ship.
const OWN_SUITES: &str = include_str!("../../../clients/own_suites.md");

/// The headings of the sections that are no languages.
const OTHER_HEADINGS: [&str; 2] = ["The libraries' own suites", "Running the suites"];

/// The parts of the page.
#[derive(Default)]
pub(crate) struct Page {
    languages: BTreeMap<String, Language>,
}

/// The parts of one language.
#[derive(Default)]
struct Language {
    rows: Vec<String>,
    section: String,
}

impl Page {
    /// Parses the present page.
    pub(crate) fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut sections = text.split("\n## ");
        let head = sections.next().unwrap_or_default();
        for section in sections {
            let (name, text) = section.split_once('\n').unwrap_or((section, ""));
            if OTHER_HEADINGS.contains(&name) {
                continue;
            }
            let rows = head.lines().filter(|row| row.starts_with(&format!("| {name} |")));
            let rows = rows.map(str::to_owned).collect();
            let section = text.trim_end().to_owned();
            page.languages.insert(name.to_owned(), Language { rows, section });
        }
        page
    }

    /// Replaces the parts of one language.
    pub(crate) fn put(
        &mut self,
        language: &str,
        comparison: &Comparison,
        versions: &BTreeMap<ServerProgram, String>,
    ) {
        let title = title(language);
        let version = |kind| versions.get(&kind).map_or("?", String::as_str);
        let mut section = format!(
            "\nRun on Redis {} and Lockwheel {}.\n",
            version(ServerProgram::Redis),
            version(ServerProgram::Lockwheel)
        );
        let mut rows = Vec::new();
        for ((library, version), behaviours) in &comparison.libraries {
            let [redis, lockwheel] = [ServerProgram::Redis, ServerProgram::Lockwheel]
                .map(|kind| report::score(behaviours, kind));
            rows.push(format!("| {title} | {library} | {version} | {redis} | {lockwheel} |"));
            section += &format!("\n### {library} {version}\n\n");
            for (behaviour, verdicts) in behaviours {
                section += &bullet(behaviour, verdicts);
            }
        }
        let section = section.trim_end().to_owned();
        self.languages.insert(title, Language { rows, section });
    }
}

impl fmt::Display for Page {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(TITLE)?;
        out.write_str(MATRIX)?;
        for row in self.languages.values().flat_map(|language| &language.rows) {
            writeln!(out, "{row}")?;
        }
        out.write_str(
            "\nA score counts the behaviours that were tried. The others are listed below.\n",
        )?;
        for (name, language) in &self.languages {
            writeln!(out, "\n## {name}\n{}", language.section)?;
        }
        write!(out, "\n{OWN_SUITES}{REPEAT}")
    }
}

/// The display name of a language.
fn title(language: &str) -> String {
    match language {
        "php" => "PHP".to_owned(),
        "node" => "Node.js".to_owned(),
        _ => language[..1].to_uppercase() + &language[1..],
    }
}

/// The line of a behaviour, with the reasons if it did not pass on both servers.
fn bullet(behaviour: &str, verdicts: &TestResults) -> String {
    let mut line = format!("- {behaviour}");
    for kind in [ServerProgram::Redis, ServerProgram::Lockwheel] {
        let Some(verdict) = verdicts.get(&kind) else {
            let _ = write!(line, " - **not reported on {}**", kind.name());
            continue;
        };
        let _ = match verdict.outcome {
            TestStatus::Passed => Ok(()),
            TestStatus::Skipped => {
                write!(line, " - skipped on {}: {}", kind.name(), verdict.reason)
            }
            TestStatus::Failed => {
                write!(line, " - **failed on {}**: {}", kind.name(), verdict.reason)
            }
        };
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(library: &str, outcome: &str) -> Comparison {
        let mut comparison = Comparison::default();
        let line = format!(
            r#"{{"library":"{library}","version":"1.2",
                "behaviour":"excludes","outcome":"{outcome}"}}"#
        );
        for kind in [ServerProgram::Redis, ServerProgram::Lockwheel] {
            comparison.add(kind, vec![serde_json::from_str(&line).expect("a line")]);
        }
        comparison
    }

    fn versions() -> BTreeMap<ServerProgram, String> {
        [(ServerProgram::Redis, "7.0".to_owned()), (ServerProgram::Lockwheel, "0.1".to_owned())]
            .into()
    }

    #[test]
    fn run_of_one_suite_keeps_the_results_of_the_others() {
        let mut page = Page::default();
        page.put("go", &comparison("redsync", "passed"), &versions());
        page.put("php", &comparison("predis", "failed"), &versions());
        let first = page.to_string();
        assert!(first.contains("| Go | redsync | 1.2 | 1/1 | 1/1 |\n"), "{first}");
        assert!(first.contains("| PHP | predis | 1.2 | 0/1 | 0/1 |\n"), "{first}");
        assert_eq!(Page::read(&first).to_string(), first);

        let mut page = Page::read(&first);
        page.put("php", &comparison("phpredis", "passed"), &versions());
        let second = page.to_string();
        assert!(second.contains("redsync") && second.contains("phpredis"), "{second}");
        assert!(!second.contains("| predis |"), "{second}");
    }
}
