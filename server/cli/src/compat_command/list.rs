//! `lockwheel compat --list`: the families, clients and cases of the suite.

use std::fmt::Write;

use lockwheel_compat::Suite;
use lockwheel_compat::report::PROPERTIES;
use serde::Serialize;

#[derive(Serialize)]
struct Document<'s> {
    schema: u32,
    cases: Vec<Item<'s>>,
}

#[derive(Serialize)]
struct Item<'s> {
    family: &'s str,
    client: Option<&'s str>,
    name: &'s str,
    why: &'s str,
    /// The file of a case; a property has none.
    place: Option<&'s str>,
    /// The first line of the case in its file.
    line: Option<usize>,
}

/// Writes the list as text or as JSON.
pub(super) fn write(suite: &Suite, as_json: bool) -> String {
    let cases = items(suite);
    if as_json {
        // Serialization of these types cannot fail.
        let text = serde_json::to_string_pretty(&Document { schema: 1, cases });
        return text.unwrap_or_default() + "\n";
    }
    let mut out = String::new();
    let mut heading = String::new();
    for Item { family, client, name, .. } in &cases {
        let client = client.map(|client| format!(": {client}")).unwrap_or_default();
        let group = format!("{family}{client}");
        if group != heading {
            let gap = if heading.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}{group}");
            heading = group;
        }
        let _ = writeln!(out, "  {name}");
    }
    let count = cases.len();
    let _ =
        writeln!(out, "\n{count} in all. Select with --only TEXT: a part of any of these lines.");
    out
}

fn items(suite: &Suite) -> Vec<Item<'_>> {
    let cases = suite.cases().iter().map(|case| Item {
        family: &case.family,
        client: case.client.as_deref(),
        name: &case.name,
        why: &case.why,
        place: Some(&case.file),
        line: case.steps.first().map(|step| step.number),
    });
    let properties = suite.properties().iter().map(|property| Item {
        family: PROPERTIES,
        client: property.client,
        name: property.name,
        why: property.why,
        place: None,
        line: None,
    });
    cases.chain(properties).collect()
}
