//! What an error of a directive says below the text of Redis: what the directive is for, and what
//! to write instead.

use lockwheel_engine::settings::{FORBIDDEN, Usage, ValueKind, find};

/// What to do instead of directives that would promise what the server does not do.
const INSTEAD: &[(&str, &str)] = &[
    ("loadmodule", "modules of Redis cannot be loaded; remove the line"),
    ("rename-command", "deny commands to users instead: 'user default on ... -flushall'"),
    ("replicaof", "servers replicate as nodes of a cluster: 'lockwheel raft --help'"),
    ("tls-key-file-pass", "remove the password: openssl pkey -in KEY -out KEY-WITHOUT-PASSWORD"),
];

/// The reason why a directive was refused, with lines of advice.
pub(super) fn below(reason: String, name: &str, values: &[&str]) -> String {
    let lines = [what_to_write(name, values), purpose(name)];
    lines.into_iter().flatten().fold(reason, |text, line| format!("{text}\n{line}"))
}

/// What to write instead, if that is known.
fn what_to_write(name: &str, values: &[&str]) -> Option<String> {
    if let Some((known, value)) = name.split_once('=')
        && let Some((known, row)) = find(known)
    {
        let value = if row.is_sensitive { "..." } else { value };
        return Some(format!("a blank separates name and value: {known} {value}"));
    }
    let lower = name.to_ascii_lowercase();
    let row = find(name).map(|(_, row)| row);
    let canonical = row.map_or(lower.as_str(), |row| row.name);
    let is_refused = FORBIDDEN.contains(&canonical)
        || row.is_some_and(|row| matches!(row.usage, Usage::Unsupported));
    if is_refused {
        let instead = INSTEAD.iter().find(|(known, _)| *known == canonical);
        return instead.map(|(_, advice)| (*advice).to_owned());
    }
    let (row, &[value]) = (row?, values) else { return None };
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    match row.kind {
        ValueKind::Span if unit.is_empty() && digits > 0 => {
            Some(format!("for seconds, write {number}s"))
        }
        ValueKind::Memory(..) | ValueKind::MemoryOrPercent
            if row.kind.read(values).is_err() && !unit.is_empty() =>
        {
            let gigabytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1024));
            Some(match (unit.to_ascii_lowercase().as_str(), gigabytes) {
                ("t" | "tb", Some(gigabytes)) => format!("the largest unit is gb: {gigabytes}gb"),
                _ => "units are b, k, kb, m, mb, g and gb, such as 100mb".to_owned(),
            })
        }
        ValueKind::Int(..) | ValueKind::Seconds(..) | ValueKind::Milliseconds(..)
            if digits > 0 && !unit.is_empty() =>
        {
            Some("write the number without a unit".to_owned())
        }
        _ => None,
    }
}

/// What a known directive is for.
fn purpose(name: &str) -> Option<String> {
    let (name, row) = find(name)?;
    (!matches!(row.usage, Usage::Unsupported)).then(|| format!("{name}: {}", row.doc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, values: &[&str], expected: Option<&str>) {
        assert_eq!(what_to_write(name, values).as_deref(), expected, "{name} {values:?}");
    }

    #[test]
    fn advice_says_what_to_write() {
        check("port=1", &[], Some("a blank separates name and value: port 1"));
        check("prot=1", &[], None);
        let redacted = "a blank separates name and value: requirepass ...";
        check("requirepass=secret", &[], Some(redacted));
        check("restart-guard-minimum", &["30"], Some("for seconds, write 30s"));
        check("restart-guard-minimum", &["soon"], None);
        check("maxmemory", &["2tb"], Some("the largest unit is gb: 2048gb"));
        let units = Some("units are b, k, kb, m, mb, g and gb, such as 100mb");
        check("maxmemory", &["1.5gb"], units);
        check("maxmemory-clients", &["1gib"], units);
        check("timeout", &["30s"], Some("write the number without a unit"));
        check("timeout", &["-1"], None);
        check("appendonly", &["maybe"], None);
    }

    #[test]
    fn each_refused_directive_has_advice() {
        let unsupported = lockwheel_engine::settings::rows()
            .filter(|row| matches!(row.usage, Usage::Unsupported))
            .map(|row| row.name);
        for name in unsupported.chain(FORBIDDEN.iter().copied()) {
            assert!(what_to_write(name, &["x"]).is_some(), "{name}");
        }
    }
}
