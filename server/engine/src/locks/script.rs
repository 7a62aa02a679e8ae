//! The purpose of a script, guessed from the commands in its text. It only matters for a script
//! that has changed nothing: whether a lock was refused, or the owner came too late.

use std::collections::BTreeMap;

use super::meaning;
use crate::command::{Command, Group, LockMeaning};
use crate::commands::server_commands;
use crate::limits::LOCKS_REMEMBERED_MAX;

/// The purpose of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To acquire a lock.
    Acquire,
    /// To extend its lease.
    Renew,
    /// To release a lock.
    Release,
    /// Unknown.
    Other,
}

impl Purpose {
    /// The purpose of a script with this text.
    pub(crate) fn of(text: &[u8]) -> Purpose {
        let text = text.to_ascii_lowercase();
        // Fair locks have sorted sets beside the lock.
        let names = |holds: &dyn Fn(&Command) -> bool| {
            let mut commands = server_commands()
                .filter(|command| command.group != Group::SortedSet && holds(command));
            commands.any(|command| quotes(&text, command.name))
        };
        if names(&|command| command.lock == LockMeaning::Release) {
            Purpose::Release
        } else if names(&|command| command.lock == LockMeaning::Acquire) {
            Purpose::Acquire
        } else if names(&meaning::always_renews) {
            Purpose::Renew
        } else {
            Purpose::Other
        }
    }
}

/// The purposes of the scripts that were run last.
#[derive(Debug, Default)]
pub(crate) struct Purposes(BTreeMap<Box<[u8]>, Purpose>);

impl Purposes {
    /// The purpose of a script with this SHA-1 and text.
    pub(crate) fn of(&mut self, sha: &[u8], text: &[u8]) -> Purpose {
        if let Some(&known) = self.0.get(sha) {
            return known;
        }
        if self.0.len() >= LOCKS_REMEMBERED_MAX {
            self.0.pop_first();
        }
        let purpose = Purpose::of(text);
        self.0.insert(sha.into(), purpose);
        purpose
    }

    /// The purpose of a script with this SHA-1, if it was run lately.
    pub(crate) fn get(&self, sha: &[u8]) -> Option<Purpose> {
        self.0.get(sha).copied()
    }
}

/// Whether a text contains this word in single or double quotes.
fn quotes(text: &[u8], word: &str) -> bool {
    text.windows(word.len() + 2).any(|window| {
        let quote = window[0];
        (quote == b'\'' || quote == b'"')
            && window[window.len() - 1] == quote
            && &window[1..=word.len()] == word.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_follows_from_the_commands_in_the_text() {
        for (text, purpose) in [
            ("redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 10)", Purpose::Acquire),
            ("redis.call(\"hincrby\", KEYS[1], ARGV[2], 1)", Purpose::Acquire),
            ("redis.call('PEXPIRE', KEYS[1], ARGV[1])", Purpose::Renew),
            ("redis.call('hincrby', 'k', 'f', -1); redis.call('del', 'k')", Purpose::Release),
            ("return redis.call('get', 'delta') -- del", Purpose::Other),
        ] {
            assert_eq!(Purpose::of(text.as_bytes()), purpose, "{text}");
        }
    }
}
