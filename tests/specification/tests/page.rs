//! The page of the specification names every defect.

use lockwheel_defects::Suite;
use lockwheel_specification::Defect;

#[test]
fn page_names_every_defect() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/specification.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let of_code = Suite::Cluster.defects().map(|defect| format!("`{defect:?}`"));
    let own = Defect::ALL.iter().map(|defect| format!("| `{defect:?}` |"));
    let missing: Vec<String> = of_code.chain(own).filter(|name| !page.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
