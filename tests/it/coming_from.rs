//! The tests with Lockwheel on `docs/coming-from.md` are those that the suites of the packages run.

use crate::boundaries::{read, root};

/// The page.
const PAGE: &str = "docs/coming-from.md";

/// The other tools, which are the sections of the page, and the file that has the test with
/// Lockwheel.
const TESTS: &[(&str, &str)] = &[
    ("fakeredis", "python/test_coming_from.py"),
    ("miniredis", "go/coming_from_test.go"),
    ("jedis-mock", "java/junit5/src/test/java/lockwheel/packages/comingfrom/InvoiceLockTest.java"),
    (
        "embedded-redis",
        "java/junit5/src/test/java/lockwheel/packages/comingfrom/StockLockTest.java",
    ),
    ("redis-memory-server", "node/coming-from.test.js"),
    (
        "Testcontainers",
        "java/junit5/src/test/java/lockwheel/packages/comingfrom/ReportLockTest.java",
    ),
];

/// The files with the tests are in this folder.
const SUITES: &str = "tests/packages";

#[test]
fn tests_on_the_page_are_those_of_the_packages() {
    let page = read(&root().join(PAGE));
    for (tool, file) in TESTS {
        let blocks = blocks(&page, tool);
        let [_, quoted] = blocks[..] else { panic!("{tool}: a test with each of two: {blocks:?}") };
        let test = read(&root().join(SUITES).join(file));
        assert!(quoted.starts_with("import "), "{tool}: {quoted}");
        assert!(test.trim_end().ends_with(quoted), "{SUITES}/{file} does not end with:\n{quoted}");
    }
    assert_eq!(page.matches("\n```").count(), 4 * TESTS.len(), "a block that is not in a section");
}

/// The code of the fenced blocks in a section of a page.
fn blocks<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let has_title = |section: &&str| section.lines().next() == Some(title);
    let section = page.split("\n## ").find(has_title).expect(title);
    let fenced = section.split("\n```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a language and code").1).collect()
}
