//! Marks: keys that are absent, then present, then deleted for ever. What one client has seen of a
//! mark must be true for all requests that are sent later, whatever happens to the server.

use std::collections::BTreeMap;

use lockwheel_compat::random::Random;

/// What is known of a mark.
#[derive(Clone, Debug, Default)]
struct Mark {
    /// Moment since which it is known that it was written, and how.
    present: Option<(i64, String)>,
    /// Moment since which it is known that it was deleted, and how.
    deleted: Option<(i64, String)>,
    /// Whether a request to delete it was sent.
    may_be_deleted: bool,
}

/// The marks, and what clients have observed of them.
#[derive(Debug, Default)]
pub struct Facts {
    marks: BTreeMap<String, Mark>,
    /// Their names, in the order in which they were written.
    order: Vec<String>,
}

impl Facts {
    /// Records that a client is about to write the mark.
    pub fn note_write_sent(&mut self, mark: &str) {
        self.order.push(mark.to_owned());
    }

    /// Records that a client is about to delete the mark.
    pub fn note_delete_sent(&mut self, mark: &str) {
        self.marks.entry(mark.to_owned()).or_default().may_be_deleted = true;
    }

    /// Records that the mark is known to have been written.
    pub fn note_written(&mut self, mark: &str, now_us: i64, how: &str) {
        let known = self.marks.entry(mark.to_owned()).or_default();
        known.present.get_or_insert_with(|| (now_us, how.to_owned()));
    }

    /// Records that the mark is known to have been deleted.
    pub fn note_deleted(&mut self, mark: &str, now_us: i64, how: &str) {
        self.note_written(mark, now_us, how);
        let known = self.marks.entry(mark.to_owned()).or_default();
        known.deleted.get_or_insert_with(|| (now_us, how.to_owned()));
    }

    /// Records the answer to a client that has asked at `asked_us` whether the mark exists. Returns
    /// what is wrong.
    pub fn answered(
        &mut self,
        mark: &str,
        exists: bool,
        asked_us: i64,
        now_us: i64,
        how: &str,
    ) -> Option<String> {
        let known = self.marks.entry(mark.to_owned()).or_default();
        if exists {
            if let Some((at_us, source)) = &known.deleted
                && *at_us <= asked_us
            {
                return Some(format!("{mark} exists, but was deleted, as {source} showed"));
            }
            self.note_written(mark, now_us, how);
            return None;
        }
        match &known.present {
            Some((at_us, source)) if *at_us <= asked_us && !known.may_be_deleted => {
                return Some(format!("{mark} is missing, but existed, as {source} showed"));
            }
            Some((at_us, _)) if *at_us <= asked_us => self.note_deleted(mark, now_us, how),
            _ => {}
        }
        None
    }

    /// The marks that a client should look at when all is over.
    pub fn names(&self) -> Vec<String> {
        self.marks.keys().cloned().collect()
    }

    /// One of the last hundred marks.
    pub fn older(&self, random: &mut Random) -> Option<String> {
        let last = &self.order[self.order.len().saturating_sub(100)..];
        (!last.is_empty()).then(|| random.pick(last).clone())
    }

    /// The last marks, the newest first; what is known of them may be nothing.
    pub fn recent(&self, count: usize) -> Vec<String> {
        self.order.iter().rev().take(count).cloned().collect()
    }
}
