//! The cases that are built in, and the scripts they name. Each file of `cases/` and `scripts/`
//! stands here once; their order is that of the table.

use super::case::{Case, Mistake};

/// Names and texts of the files of cases.
pub const FILES: &[(&str, &str)] = &[
    ("cases/conversions.txt", include_str!("cases/conversions.txt")),
    ("cases/protocol.txt", include_str!("cases/protocol.txt")),
    ("cases/scripts.txt", include_str!("cases/scripts.txt")),
    ("cases/strings.txt", include_str!("cases/strings.txt")),
    ("cases/keys.txt", include_str!("cases/keys.txt")),
    ("cases/hashes.txt", include_str!("cases/hashes.txt")),
    ("cases/lists.txt", include_str!("cases/lists.txt")),
    ("cases/sorted_sets.txt", include_str!("cases/sorted_sets.txt")),
];

/// Names and texts of the scripts: `@compare-and-delete` is `scripts/compare-and-delete.lua`.
pub const SCRIPTS: &[(&str, &str)] =
    &[("compare-and-delete", include_str!("scripts/compare-and-delete.lua"))];

/// Every case.
pub fn all() -> Result<Vec<Case>, Mistake> {
    let mut cases = Vec::new();
    for (file, text) in FILES {
        cases.extend(Case::parse_all(file, text)?);
    }
    Ok(cases)
}

/// The text of a script.
pub fn script(name: &str) -> Option<&'static str> {
    SCRIPTS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{FILES, SCRIPTS, all};

    #[test]
    fn every_case_says_what_it_is_for() {
        let cases = all().expect("they are well-formed");
        let mut names = BTreeSet::new();
        for case in &cases {
            let place = format!("{}: {}", case.file, case.name);
            assert!(!case.family.is_empty(), "{place}: no family");
            assert!(!case.why.is_empty(), "{place}: no reason");
            assert!(!case.steps.is_empty(), "{place}: nothing is said");
            assert!(names.insert((&case.family, &case.client, &case.name)), "{place}: twice");
        }
    }

    #[test]
    fn every_file_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/compat");
        let check = |name: &str, known: usize| {
            let files = walk(&folder.join(name));
            assert_eq!(files, known, "files below {name}");
        };
        check("cases", FILES.len());
        check("scripts", SCRIPTS.len());
    }

    fn walk(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        let count = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.expect("readable").path();
            if path.is_dir() { walk(&path) } else { 1 }
        };
        entries.map(count).sum()
    }
}
