//! Counts the lines of Rust of each package: code, tests and all lines.
//!
//! Code is what is neither blank nor a comment nor a test. Tests are the items behind
//! `#[cfg(test)]`, the files that these declare, and all files below a folder `tests` or `testing`.
//! Generated code counts.

#![allow(clippy::print_stdout)] // A command-line program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Lines of a file or a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    /// Neither blank, comments nor tests.
    code: usize,
    /// Tests that are neither blank nor comments.
    tests: usize,
    all: usize,
}

/// What a file contains.
#[derive(Debug, Default, PartialEq, Eq)]
struct Contents {
    lines: Lines,
    /// The modules that are declared behind `#[cfg(test)]`.
    test_modules: Vec<String>,
}

fn main() -> ExitCode {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    match count(Path::new(&folder)) {
        Ok(packages) => {
            let sum = |is_of: fn(&str) -> bool| {
                let chosen = packages.iter().filter(|(package, _)| is_of(package));
                chosen.fold(Lines::default(), |sum, (_, lines)| sum.plus(*lines))
            };
            let sums = [
                ("all packages", sum(|_| true)),
                ("without benches", sum(|package| !package.starts_with("benches"))),
            ];
            let packages = packages.iter().map(|(package, lines)| (package.as_str(), *lines));
            println!("{:>8}{:>8}{:>8}  package", "code", "tests", "all");
            for (package, lines) in packages.chain(sums) {
                println!("{:>8}{:>8}{:>8}  {package}", lines.code, lines.tests, lines.all);
            }
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("lines: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// The lines of the packages of a work tree, by their folders.
fn count(root: &Path) -> Result<BTreeMap<String, Lines>, String> {
    let output = Command::new("git").arg("-C").arg(root).args(["ls-files", "-z"]).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths: Vec<&Path> = listed.split('\0').map(Path::new).collect();
    let manifests = paths.iter().filter(|path| path.ends_with("Cargo.toml"));
    let folders: BTreeSet<&Path> = manifests.filter_map(|path| path.parent()).collect();
    let mut files = BTreeMap::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|it| it == "rs")) {
        let text = std::fs::read_to_string(root.join(path));
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        files.insert(*path, contents(&text));
    }
    let of_tests: Vec<PathBuf> = files.iter().flat_map(|(path, it)| declared(path, it)).collect();
    let mut packages: BTreeMap<String, Lines> = BTreeMap::new();
    for (path, contents) in &files {
        let mut lines = contents.lines;
        if is_test(path) || of_tests.iter().any(|it| path.with_extension("").starts_with(it)) {
            lines = Lines { code: 0, tests: lines.code + lines.tests, all: lines.all };
        }
        let package = path.ancestors().skip(1).find(|folder| folders.contains(folder));
        let name = package.unwrap_or(Path::new("")).display().to_string();
        let sum = packages.entry(name).or_default();
        *sum = sum.plus(lines);
    }
    Ok(packages)
}

/// Whether a file is below a folder of tests.
fn is_test(path: &Path) -> bool {
    path.iter().any(|part| part == "tests" || part == "testing")
}

/// The files and folders of the test modules that a file declares, without extension.
fn declared(path: &Path, contents: &Contents) -> Vec<PathBuf> {
    let folder = match path.file_stem().is_some_and(|it| it == "mod" || it == "lib" || it == "main")
    {
        true => path.parent().unwrap_or(Path::new("")).to_owned(),
        false => path.with_extension(""),
    };
    contents.test_modules.iter().map(|name| folder.join(name)).collect()
}

impl Lines {
    fn plus(self, other: Lines) -> Lines {
        Lines {
            code: self.code + other.code,
            tests: self.tests + other.tests,
            all: self.all + other.all,
        }
    }
}

/// Counts the lines of a file.
fn contents(text: &str) -> Contents {
    let mut contents = Contents::default();
    let mut test: Option<Item> = None;
    contents.lines.all = text.lines().count();
    for line in bare(text).lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_marked = ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|it| line.starts_with(it));
        if test.is_none() && is_marked {
            test = Some(Item::default());
        }
        let Some(item) = &mut test else {
            contents.lines.code += 1;
            continue;
        };
        contents.lines.tests += 1;
        let words = line.rsplit("mod ").next().filter(|_| line.contains("mod "));
        contents.test_modules.extend(words.and_then(|it| it.strip_suffix(';')).map(str::to_owned));
        if item.ends_with(line) {
            test = None;
        }
    }
    contents
}

/// An item that has begun.
#[derive(Default)]
struct Item {
    depth: usize,
}

impl Item {
    /// Whether the item ends with this line: with its last brace, or with the end of a statement,
    /// a field or a match arm.
    fn ends_with(&mut self, line: &str) -> bool {
        for letter in line.chars() {
            match letter {
                '{' | '(' | '[' => self.depth += 1,
                '}' | ')' | ']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.depth == 0 && line.ends_with(['}', ';', ','])
    }
}

/// A source without comments, and with `_` for each character of a literal.
fn bare(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let is_word = out.ends_with(|it: char| it.is_alphanumeric() || it == '_');
        let (length, is_comment) = match letter {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => (block_comment(rest), true),
            'r' if !is_word || out.ends_with(['b', 'c']) => (raw_string(rest).unwrap_or(0), false),
            '"' => (string(rest), false),
            '\'' => (character(rest), false),
            _ => (0, false),
        };
        let (part, next) = rest.split_at(if length == 0 { letter.len_utf8() } else { length });
        match length {
            0 => out.push_str(part),
            _ => out.extend(part.chars().map(|it| match it {
                '\n' => '\n',
                _ if is_comment => ' ',
                _ => '_',
            })),
        }
        rest = next;
    }
    out
}

/// The length of a block comment, which may contain others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let step = match text.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a raw string, if it is one.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].bytes().take_while(|byte| *byte == b'#').count();
    let begin = 1 + hashes;
    text[begin..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = text[begin + 1..].find(&end).map(|at| begin + 1 + at + end.len());
    Some(length.unwrap_or(text.len()))
}

/// The length of a string.
fn string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character, or 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            letters.next();
            letters.find(|(_, it)| *it == '\'').map_or(0, |(at, _)| at + 1)
        }
        _ => letters.next().filter(|(_, it)| *it == '\'').map_or(0, |(at, _)| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::{bare, contents};

    #[test]
    fn comments_blanks_and_tests_are_no_code() {
        let code = "//! Doc.\n\nuse a; // why\n/* b\nc */\nfn f() {\n    \"//\n\";\n}\n\n";
        let tests = "#[cfg(test)]\nmod known;\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        let text = &format!("{code}{tests}fn h() {{}}\n");
        let contents = contents(text);
        let lines = contents.lines;
        assert_eq!((lines.code, lines.tests, lines.all), (6, 6, 17), "{}", bare(text));
        assert_eq!(contents.test_modules, ["known"]);
    }

    #[test]
    fn braces_of_literals_are_no_code() {
        for text in ["'{'", "'\\''", "\"{\\\"{\"", "r#\"{\"{\"#", "b'{'", "b\"{\""] {
            assert!(!bare(text).contains('{'), "{text}");
        }
        assert_eq!(bare("fn f<'a>(it: &'a str) {}"), "fn f<'a>(it: &'a str) {}");
    }
}
