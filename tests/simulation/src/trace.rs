//! The trace of a history: everything that happens, as a hash, and as text if it is to be read.

use std::fmt::Write;

/// The trace of a history.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    /// Readable lines; kept only if they are requested.
    pub lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that keeps its lines if `is_kept`.
    pub fn new(is_kept: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: is_kept.then(Vec::new) }
    }

    /// Adds an event: its kind, its bytes, and a readable line.
    pub fn add(&mut self, at_us: i64, kind: &str, bytes: &[u8], line: impl FnOnce() -> String) {
        for byte in at_us.to_le_bytes().iter().chain(kind.as_bytes()).chain(bytes) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &mut self.lines {
            let mut text = format!("{:>10.3} ms  ", at_us as f64 / 1000.0);
            // Writing to a string succeeds.
            let _ = write!(text, "{}", line());
            lines.push(text);
        }
    }

    /// The hash of all that was added.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}
