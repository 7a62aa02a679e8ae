//! Writes the report as JSON. Within one format number fields are only added, never renamed or
//! removed.

use serde::Serialize;

use super::results::Report;
use super::words::is_visible;

/// Increased when a field is renamed or removed, or its meaning changes.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Document<'r> {
    format: u32,
    verdict: &'static str,
    #[serde(flatten)]
    report: &'r Report,
}

/// The report as JSON.
pub(super) fn write(report: &Report) -> String {
    let document = Document { format: FORMAT, verdict: report.verdict(), report };
    // Serialisation of these types cannot fail.
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    let mut out = String::with_capacity(text.len() + 1);
    // Strings alone contain characters beyond ASCII. Control characters are escaped already.
    for char in text.chars() {
        if char < '\x7f' || is_visible(char) {
            out.push(char);
        } else {
            let units = char.encode_utf16(&mut [0; 2]).to_vec();
            units.iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        }
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::report::{Format, sample};

    fn parsed(report: &super::Report) -> Value {
        serde_json::from_str(&report.write(Format::Json)).expect("JSON")
    }

    #[test]
    fn json_has_the_verdict_and_all_fields() {
        let mut report = sample::report();
        report.warnings = vec!["\u{202e}\u{e0001}\x07 caf\u{e9}".to_owned()];
        let json = parsed(&report);
        assert_eq!(json["format"], 1);
        assert_eq!(json["verdict"], "found");
        assert_eq!(json["totals"]["granted_twice"], 17);
        assert_eq!(json["kinds"][0][1]["granted"], 3000);
        assert_eq!(json["cases"][0]["cause"], "promoted_replica");
        assert_eq!(json["cases"][0]["story"][1]["is_proof"], true);
        assert_eq!(json["observations"][0]["change"]["unreachable"], "connection refused");
        assert_eq!(json["warnings"][0], report.warnings[0].as_str());
        assert_eq!(parsed(&sample::green())["verdict"], "nothing found");
    }
}
