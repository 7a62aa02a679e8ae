//! The names of the files of a log.

use crate::position::Position;

/// The file that a process locks while it uses the directory.
pub const LOCK: &str = "lock";

/// What a repair or a restoration leaves for the next start: see [`marker`](crate::marker).
pub const GUARD: &str = "guard";

/// Name of a file that exists until a restoration has copied all files.
pub const RESTORING: &str = "restoring";

/// A file of the log, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The state at this position.
    Snapshot(Position),
    /// A snapshot that is being written, or was when a process ended.
    PartialSnapshot(Position),
    /// The units from this position on.
    Segment(Position),
}

impl Name {
    /// The name that a file has; `None` if it is no file of the log.
    pub fn parse(name: &str) -> Option<Name> {
        let (digits, kind) = name.split_once('.')?;
        if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let position = digits.parse().ok()?;
        match kind {
            "snapshot" => Some(Name::Snapshot(position)),
            "partial" => Some(Name::PartialSnapshot(position)),
            "log" => Some(Name::Segment(position)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Snapshot(position) => write!(f, "{position:0DIGITS$}.snapshot"),
            Name::PartialSnapshot(position) => write!(f, "{position:0DIGITS$}.partial"),
            Name::Segment(position) => write!(f, "{position:0DIGITS$}.log"),
        }
    }
}

/// Enough for every position, so that the names sort as the positions do.
const DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        for name in [Name::Snapshot(0), Name::PartialSnapshot(7), Name::Segment(u64::MAX)] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_files_are_ignored() {
        for name in ["lock", "1.log", "0000000000000000000x.log", "99999999999999999999.log", ""] {
            assert_eq!(Name::parse(name), None, "{name}");
        }
    }
}
