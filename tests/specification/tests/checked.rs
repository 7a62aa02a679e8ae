//! Checks all states within bounds, and that each broken rule breaks an invariant.

#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use std::collections::BTreeMap;

use lockwheel_specification::{Bounds, Defect, Step, check};

/// Checks all states; each step, and each case that an invariant is about, must occur.
fn check_all(all: Vec<Bounds>) {
    let (mut steps, mut cases) = (BTreeMap::new(), BTreeMap::new());
    for bounds in all {
        let (name, used) = (bounds.name, bounds.steps.clone());
        let checked = check(bounds, None);
        println!("{name}: {} states", checked.states);
        assert!(checked.violation.is_none(), "{name}: {:?}", checked.violation);
        for (step, count) in checked.steps {
            assert!(count > 0 || !used.contains(&step), "{name}: {step:?} has not happened");
            *steps.entry(format!("{step:?}")).or_insert(0) += count;
        }
        for (case, count) in checked.cases {
            *cases.entry(case).or_insert(0) += count;
        }
    }
    println!("{steps:?}\n{cases:?}");
    assert_eq!(steps.len(), Step::ALL.len());
    assert!(steps.values().chain(cases.values()).all(|count| *count > 0));
}

#[test]
fn invariants_hold_in_all_states() {
    check_all(Bounds::small());
}

#[test]
fn each_defect_breaks_the_invariant_of_the_page() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/specification.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let is_wrong = |defect: &&Defect| {
        let violation = check(defect.bounds(), Some(**defect)).violation;
        let found =
            violation.map(|found| format!("| {} | {} |", found.invariant, found.steps.len()));
        println!("{defect:?}: {found:?}");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{defect:?}` |")));
        !found.is_some_and(|found| row.is_some_and(|row| row.ends_with(&found)))
    };
    let wrong: Vec<&Defect> = Defect::ALL.iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
#[ignore = "takes minutes"]
fn invariants_hold_in_more_states() {
    check_all(Bounds::large());
}
