//! Each sentence that promises something has an identifier; `docs/proofs.md` lists what shows it.
//!
//! An identifier, such as `<sub>G12</sub>`, ends a sentence of the pages, or a cell of a table. A
//! sentence in parentheses explains, and has none. What shows a promise names its identifier:
//!
//! - the rows of `server/defects`, and the seeded faults of `tests/src/faulty`;
//! - the invariants of `docs/specification.md`, which its defects name;
//! - the comments of tests (`/// Shows G12.`; in other languages `# Shows G12.` or
//!   `// Shows G12.`), of cases (`# Shows G12.`), and of the files of programs (`//! Shows G12.`).
//!
//! With `LOCKWHEEL_WRITE_DOCS` set, the page is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;

use lockwheel_defects::{Defect, Suite};
use lockwheel_tests::faulty::faults;

use crate::boundaries::{files, read, relative, root};

const PAGE: &str = "docs/proofs.md";
/// Names the variable with which the page is written.
const WRITE: &str = "LOCKWHEEL_WRITE_DOCS";

/// The pages with promises: the letter of their identifiers, and the sections that promise.
const PAGES: &[(&str, char, &[&str])] = &[
    (
        "guarantees.md",
        'G',
        &[
            "No lock is granted twice",
            "No lock is lost early",
            "Full memory and full disk",
            "What survives which fault",
        ],
    ),
    ("replication.md", 'R', &["What is guaranteed"]),
    ("locks.md", 'L', &["Fencing tokens", "What a token guarantees", "Bound to a connection"]),
    ("running.md", 'S', &["The restart guard", "What can be a lock"]),
];

/// Tests without a defect that must make them fail.
const TESTS: &str = "Tests";
/// What would not be seen, where that is known.
const NOT_SEEN: &str = include_str!("not_seen.txt");

const BEGINNING: &str = "# Proofs

<!-- Generated from the pages, the defects and the comments of tests. To write this page anew:
     LOCKWHEEL_WRITE_DOCS=1 cargo test -p lockwheel-tests --test it proofs:: -->

What shows that Lockwheel keeps its promises. [How Lockwheel is tested](how-lockwheel-is-tested.md)
describes the methods, and what each cannot see.

- A promise is **proven** by the defects that break it: mistakes that can be switched on in the code
  or in the specification, or are put into a server for the compatibility suite. The gate fails if
  one of them is not found.
- A promise that is only shown by **tests** has no such defect. They check it, but nothing shows
  that they notice what breaks it.
- **Not seen** is what could break the promise without being noticed, where that is known.

| Page | Promises | Proven by defects | Shown by tests | Not shown |
|---|---:|---:|---:|---:|
";

/// A sentence that promises something.
struct Promise {
    id: String,
    sentence: String,
    page: &'static str,
    section: &'static str,
}

/// What shows promises: the method, and the defects or tests by promise.
struct Method {
    name: &'static str,
    shown: BTreeMap<String, BTreeSet<String>>,
}

#[test]
fn every_sentence_that_promises_has_an_identifier() {
    let (promises, without) = promises();
    assert!(without.is_empty(), "sentences without an identifier:\n{}", without.join("\n"));
    let mut known = BTreeSet::new();
    let repeated = promises.iter().filter(|promise| !known.insert(&promise.id));
    let repeated: Vec<&String> = repeated.map(|promise| &promise.id).collect();
    assert!(repeated.is_empty(), "identifiers of two sentences: {repeated:?}");
}

#[test]
fn what_is_shown_is_promised() {
    let (promises, _) = promises();
    let known: BTreeSet<&str> = promises.iter().map(|promise| promise.id.as_str()).collect();
    let (methods, not_seen) = (methods(), not_seen());
    let named = methods.iter().flat_map(|method| method.shown.keys()).chain(not_seen.keys());
    let unknown: BTreeSet<&String> = named.filter(|id| !known.contains(id.as_str())).collect();
    assert!(unknown.is_empty(), "no sentence has these identifiers: {unknown:?}");
    let is_missing = |id: &&str| shown_by(&methods, id).is_empty() && !not_seen.contains_key(*id);
    let missing: Vec<&str> = known.iter().copied().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "not shown, and tests/it/not_seen.txt does not say why: {missing:?}"
    );
}

#[test]
fn page_of_proofs_is_generated() {
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(root().join(PAGE), &page).expect("the page can be written");
    }
    let written = fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    assert!(written == page, "{PAGE} is outdated: run this test with {WRITE}=1");
}

#[test]
fn sentences_are_divided() {
    let ends = |text: &str| sentences(text).into_iter().collect::<Vec<_>>();
    let pair = |text: &str, id: Option<&str>| (text.to_owned(), id.map(str::to_owned));
    assert_eq!(
        ends("**A b.**<sub>G1</sub> C `d. e` (f. g), [h. i](j.md). (K. L.) M.<sub>G2</sub> N:"),
        [
            pair("**A b.**", Some("G1")),
            pair("C `d. e` (f. g), [h. i](j.md).", None),
            pair("M.", Some("G2")),
        ]
    );
    assert_eq!(ends("no end"), [pair("no end", None)]);
}

// --- The pages. ---

/// The promises, and the sentences that should have an identifier.
fn promises() -> (Vec<Promise>, Vec<String>) {
    let (mut promises, mut without) = (Vec::new(), Vec::new());
    for (page, letter, sections) in PAGES {
        let text = read(&root().join("docs").join(page));
        for section in *sections {
            for (sentence, id) in blocks(&text, section).iter().flat_map(|block| sentences(block)) {
                match id.filter(|id| id.starts_with(*letter)) {
                    Some(id) => promises.push(Promise { id, sentence, page, section }),
                    None => without.push(format!("{page}: {sentence}")),
                }
            }
            let is_found = promises.iter().any(|promise| promise.section == *section);
            assert!(is_found, "{page} has no promises in the section {section}");
        }
    }
    (promises, without)
}

/// The paragraphs, items of lists and cells of tables of a section. The first column of a table is
/// a part of the other cells.
fn blocks(page: &str, section: &str) -> Vec<String> {
    let is_heading = |line: &str| line.starts_with('#') && line.trim_matches(['#', ' ']) == section;
    let lines = page.lines().skip_while(|line| !is_heading(line)).skip(1);
    let mut blocks: Vec<String> = vec![String::new()];
    let (mut head, mut is_code) = (Vec::new(), false);
    for line in lines.take_while(|line| !line.starts_with('#')) {
        is_code ^= line.starts_with("```");
        if is_code || line.trim().is_empty() || line.starts_with("```") {
            blocks.push(String::new());
            head.clear();
        } else if let Some(row) = line.strip_prefix('|') {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            if head.is_empty() {
                head = cells;
            } else if !cells[0].starts_with("---") {
                let cells = cells.iter().zip(&head).skip(1).filter(|(cell, _)| !cell.is_empty());
                let first = row.split('|').next().unwrap_or_default().trim();
                blocks.extend(cells.map(|(cell, head)| match cell.starts_with('(') {
                    true => String::new(),
                    false => format!("{first}; {head}: {}", cell.replacen("<sub>", ".<sub>", 1)),
                }));
            }
        } else if let Some(item) = line.trim_start().strip_prefix("- ") {
            blocks.push(item.to_owned());
        } else {
            let block = blocks.last_mut().expect("a block");
            block.push_str(if block.is_empty() { "" } else { " " });
            block.push_str(line.trim());
        }
    }
    blocks
}

/// The sentences of a block with their identifiers, without those in parentheses. A block that ends
/// with a colon introduces what follows.
fn sentences(block: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let (mut rest, mut place, mut depth, mut is_code) = (block, 0, 0, false);
    while let Some(char) = rest[place..].chars().next() {
        place += char.len_utf8();
        match char {
            '`' => is_code = !is_code,
            '(' | '[' if !is_code => depth += 1,
            ')' | ']' if !is_code => depth -= 1,
            _ => {}
        }
        let explains = char == ')' && rest.starts_with('(');
        let is_end = depth == 0 && !is_code && (".?!".contains(char) || explains);
        let bold = if rest[place..].starts_with("**") { 2 } else { 0 };
        let after = &rest[place + bold..];
        if !is_end || !(after.is_empty() || after.starts_with(' ') || after.starts_with("<sub>")) {
            continue;
        }
        let sentence = rest[..place + bold].to_owned();
        let id = after.strip_prefix("<sub>").and_then(|after| after.split_once("</sub>"));
        rest = id.map_or(after, |(_, after)| after).trim_start();
        if !explains {
            found.push((sentence, id.map(|(id, _)| id.to_owned())));
        }
        place = 0;
    }
    if !rest.is_empty() && !rest.ends_with(':') {
        found.push((rest.to_owned(), None));
    }
    found
}

// --- What shows promises. ---

/// The methods in the order of the page.
fn methods() -> Vec<Method> {
    let mut methods = Vec::new();
    for (suite, name) in [
        (Suite::Simulation, "Simulation of a server"),
        (Suite::Servers, "Simulation of the servers of a cluster"),
        (Suite::Cluster, "Simulation of a replicated log"),
    ] {
        let mut method = Method { name, shown: BTreeMap::new() };
        let left_out = Defect::EffectLeftOut("*");
        for defect in suite.defects().chain((left_out.suite() == suite).then_some(left_out)) {
            method.add(defect.promises(), &format!("`{defect}`"));
        }
        methods.push(method);
    }
    let mut method = Method { name: "Compatibility suite", shown: BTreeMap::new() };
    for fault in faults() {
        method.add(fault.promises, &format!("`{}`", fault.name));
    }
    methods.push(method);
    methods.push(specification());
    methods.push(tests());
    methods
}

impl Method {
    fn add(&mut self, promises: &[impl AsRef<str>], what: &str) {
        for promise in promises {
            self.shown.entry(promise.as_ref().to_owned()).or_default().insert(what.to_owned());
        }
    }
}

/// The invariants name promises, and the defects invariants, in tables of the page.
fn specification() -> Method {
    let mut method = Method { name: "Specification", shown: BTreeMap::new() };
    let page = read(&root().join("docs/specification.md"));
    let rows = || page.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let invariants = rows().filter(|row| row.len() == 5).map(|row| (row[1], list(row[3])));
    let invariants: BTreeMap<&str, Vec<String>> =
        invariants.filter(|(_, ids)| ids.iter().all(|id| is_id(id))).collect();
    for row in rows().filter(|row| row.len() == 6) {
        if let Some(promises) = invariants.get(row[3]) {
            method.add(promises, row[1]);
        }
    }
    method
}

/// How a comment that names promises begins, and the line of what shows them, if not the file.
const COMMENTS: [(&str, Option<&str>); 3] =
    [("/// Shows ", Some("fn ")), ("# Shows ", Some("== ")), ("//! Shows ", None)];

/// How such a comment begins in tests of other languages, by the ending of their files, and what is
/// around the name of the test in one of the next lines.
const LANGUAGES: [(&str, &str, [&str; 2]); 4] = [
    ("py", "# Shows ", ["def ", "("]),
    ("go", "// Shows ", ["func ", "("]),
    ("java", "// Shows ", ["void ", "("]),
    ("js", "// Shows ", ["(\"", "\""]),
];

/// Tests of other languages whose comments name promises.
fn tests_of_packages(method: &mut Method) {
    for path in files(&root().join("tests/packages")) {
        let is_of = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
        let Some((_, comment, [before, after])) = LANGUAGES.iter().find(|row| is_of(row.0)) else {
            continue;
        };
        let (text, path) = (read(&path), relative(&path));
        for (place, _) in text.match_indices(comment) {
            let (first, below) = text[place + comment.len()..].split_once('\n').unwrap_or_default();
            let ids = list(first);
            if ids.iter().all(|id| is_id(id)) {
                let name = below.split_once(before).and_then(|(_, rest)| rest.split_once(after));
                let (name, _) = name.unwrap_or_else(|| panic!("{path}: {first}: of nothing"));
                method.add(&ids, &format!("[{name}](../{path})"));
            }
        }
    }
}

/// Tests, cases and programs whose comments name promises.
fn tests() -> Method {
    let mut method = Method { name: TESTS, shown: BTreeMap::new() };
    let files =
        ["packages", "scripting", "server", "tests"].map(|folder| files(&root().join(folder)));
    let is_text = |ending: &OsStr| ending == "rs" || ending == "txt";
    for path in files.iter().flatten().filter(|path| path.extension().is_some_and(is_text)) {
        let (text, path) = (read(path), relative(path));
        let bare = |line| str::trim_start(line).trim_start_matches("async ");
        let lines: Vec<&str> = text.lines().map(bare).collect();
        for (number, line) in lines.iter().enumerate() {
            for (comment, head) in COMMENTS {
                let ids = line.strip_prefix(comment).map(list).unwrap_or_default();
                if ids.is_empty() || !ids.iter().all(|id| is_id(id)) {
                    continue;
                }
                let below = &lines[number..];
                let name = head.map_or(path.as_str(), |head| {
                    let at = below.iter().position(|line| line.starts_with(head));
                    let at = at.unwrap_or_else(|| panic!("{path}: {line}: of nothing"));
                    let is_attribute =
                        |line: &&str| line.starts_with("#[") && line.contains("test");
                    let is_test = head == "== " || below[..at].iter().any(is_attribute);
                    assert!(is_test, "{path}: {line}: not of a test");
                    below[at][head.len()..].split('(').next().unwrap_or_default()
                });
                method.add(&ids, &format!("[{name}](../{path})"));
            }
        }
    }
    tests_of_packages(&mut method);
    method
}

/// The identifiers of a list: `G1, G2.`
fn list(text: &str) -> Vec<String> {
    text.trim_end_matches('.').split(", ").map(str::to_owned).collect()
}

fn is_id(text: &str) -> bool {
    let digits = PAGES.iter().find_map(|(_, letter, _)| text.strip_prefix(*letter));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// What would not be seen: a line for each promise, those that begin with spaces continue it.
fn not_seen() -> BTreeMap<String, String> {
    let joined = NOT_SEEN.replace("\n    ", " ");
    let lines = joined.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(id, text)| (id.to_owned(), text.to_owned())).collect()
}

// --- The page. ---

fn page() -> String {
    let ((promises, _), methods, not_seen) = (promises(), methods(), not_seen());
    let mut page = BEGINNING.to_owned();
    let count = |file: &str, is_counted: &dyn Fn(&[&str]) -> bool| {
        let of_page = promises.iter().filter(|promise| promise.page == file);
        of_page.filter(|promise| is_counted(&shown_by(&methods, &promise.id))).count()
    };
    for (file, ..) in PAGES {
        let all = count(file, &|_| true);
        let proven = count(file, &|methods| methods.iter().any(|name| *name != TESTS));
        let tested = count(file, &|methods| *methods == [TESTS]);
        let rest = all - proven - tested;
        writeln!(page, "| [{file}]({file}) | {all} | {proven} | {tested} | {rest} |")
            .expect("text");
    }
    let mut section = "";
    for Promise { id, sentence, page: file, section: of } in &promises {
        if section != *of {
            section = of;
            let anchor = section.to_lowercase().replace(' ', "-");
            write!(page, "\n## [{section}]({file}#{anchor})\n\n").expect("text");
        }
        let sentence = sentence.replace("](#", &format!("]({file}#"));
        writeln!(page, "- **{id}** {sentence}").expect("text");
        for Method { name, shown } in &methods {
            if let Some(shown) = shown.get(id) {
                let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
                writeln!(page, "  - {name}: {}", shown.join(", ")).expect("text");
            }
        }
        if let Some(text) = not_seen.get(id) {
            writeln!(page, "  - Not seen: {text}").expect("text");
        }
    }
    page
}

/// The names of the methods that show a promise.
fn shown_by<'a>(methods: &'a [Method], id: &str) -> Vec<&'a str> {
    methods
        .iter()
        .filter(|method| method.shown.contains_key(id))
        .map(|method| method.name)
        .collect()
}
