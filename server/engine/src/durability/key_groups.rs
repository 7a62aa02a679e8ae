//! The groups of keys with long leases, which a long restart guard names: the keys of a group are
//! the same up to the first `:`.

use crate::limits;
use crate::timing::time::Millis;

/// A group of keys with long leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGroup {
    /// The first bytes of its keys, up to the first `:` or [`limits::KEY_GROUP_BYTES_MAX`].
    pub prefix: Vec<u8>,
    /// The latest deadline of its keys.
    pub deadline: Millis,
}

/// The groups with the latest deadlines: at most [`limits::KEY_GROUPS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyGroups(Vec<KeyGroup>);

impl KeyGroups {
    /// No groups.
    pub const NONE: KeyGroups = KeyGroups(Vec::new());

    /// The groups in any order.
    pub fn iter(&self) -> impl Iterator<Item = &KeyGroup> {
        self.0.iter()
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The prefixes of the groups as text, that with the latest deadline first.
    pub fn names(&self) -> Vec<String> {
        let mut groups: Vec<&KeyGroup> = self.iter().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.deadline));
        groups.iter().map(|group| group.prefix.escape_ascii().to_string()).collect()
    }

    /// Adds a key or the prefix of a group. If there are too many groups, that with the earliest
    /// deadline is left out.
    pub fn add(&mut self, key: &[u8], deadline: Millis) {
        let prefix = prefix_of(key);
        if let Some(known) = self.0.iter_mut().find(|group| group.prefix == prefix) {
            known.deadline = known.deadline.max(deadline);
            return;
        }
        if self.0.len() >= limits::KEY_GROUPS_MAX {
            let earliest = (0..self.0.len()).min_by_key(|&at| self.0[at].deadline);
            match earliest {
                Some(at) if self.0[at].deadline < deadline => drop(self.0.swap_remove(at)),
                _ => return,
            }
        }
        self.0.push(KeyGroup { prefix: prefix.to_vec(), deadline });
    }

    /// Adds groups, with their deadlines moved by `span`.
    pub fn merge(&mut self, others: &KeyGroups, span: Millis) {
        for KeyGroup { prefix, deadline } in others.iter() {
            self.add(prefix, Millis(deadline.0.saturating_add(span.0)));
        }
    }

    /// Moves all deadlines by `span`.
    pub fn postpone(&mut self, span: Millis) {
        for group in &mut self.0 {
            group.deadline = Millis(group.deadline.0.saturating_add(span.0));
        }
    }

    /// Removes the groups whose deadlines are not after `now`.
    pub fn remove_ended(&mut self, now: Millis) {
        self.0.retain(|group| group.deadline > now);
    }
}

fn prefix_of(key: &[u8]) -> &[u8] {
    let end = key.iter().position(|&byte| byte == b':').map_or(key.len(), |colon| colon + 1);
    &key[..end.min(limits::KEY_GROUP_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_the_latest_deadlines_are_kept() {
        let mut groups = KeyGroups::NONE;
        for (key, deadline) in [("a:1", 5), ("a:2", 3), ("a", 1), (":x", 2), ("b:c:d", 4)] {
            groups.add(key.as_bytes(), Millis(deadline));
        }
        assert_eq!(groups.names(), ["a:", "b:", ":", "a"]);
        for number in 0..9 {
            groups.add(format!("{number}:").as_bytes(), Millis(10 - number));
        }
        groups.add(b"late:\xff", Millis(i64::MAX));
        assert_eq!(groups.len(), limits::KEY_GROUPS_MAX);
        assert_eq!(groups.names()[..3], ["late:", "0:", "1:"]);
        groups.postpone(Millis(-5));
        groups.remove_ended(Millis(0));
        assert_eq!(groups.names(), ["late:", "0:", "1:", "2:", "3:", "4:"]);
    }

    /// Shows S17.
    #[test]
    fn long_names_are_cut() {
        let mut groups = KeyGroups::NONE;
        groups.add(&[b'\n'; 100], Millis(1));
        groups.add(&[b'\n'; 64], Millis(2));
        assert_eq!(groups.names(), ["\\n".repeat(64)]);
    }
}
