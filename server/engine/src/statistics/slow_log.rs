//! The slow log: the last commands that took longer than `slowlog-log-slower-than`.

use std::collections::VecDeque;

/// Arguments of a command that are kept, as in Redis: the last one says how many more there are.
const ARGUMENTS_MAX: usize = 32;

/// Bytes of an argument that are kept, as in Redis.
const ARGUMENT_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    /// Its number, which counts from 0.
    pub(crate) number: u64,
    /// When its batch of requests began, in seconds since the Unix epoch.
    pub(crate) at_seconds: i64,
    /// How long it took, in microseconds.
    pub(crate) took_us: u64,
    /// Its words, shortened and without passwords.
    pub(crate) words: Vec<Box<[u8]>>,
    /// The address of its client.
    pub(crate) address: String,
    /// The name of its client.
    pub(crate) client_name: Box<[u8]>,
}

/// The entries of `SLOWLOG`.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    /// The newest first.
    entries: VecDeque<SlowCommand>,
    next_number: u64,
}

impl SlowLog {
    /// Adds a command, and removes the oldest ones beyond `length_max`. Its number is set here.
    pub(crate) fn add(&mut self, command: SlowCommand, length_max: usize) {
        let number = self.next_number;
        self.next_number += 1;
        self.entries.push_front(SlowCommand { number, ..command });
        self.entries.truncate(length_max);
    }

    /// The commands, the newest first.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = &SlowCommand> {
        self.entries.iter()
    }

    /// Removes all commands. Numbers go on.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// The words of a command as the slow log keeps them.
pub(crate) fn shortened(words: &[&[u8]]) -> Vec<Box<[u8]>> {
    let kept = if words.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { words.len() };
    let mut shown: Vec<Box<[u8]>> = words[..kept].iter().map(|word| shortened_word(word)).collect();
    if kept < words.len() {
        let more = words.len() - kept;
        shown.push(format!("... ({more} more arguments)").into_bytes().into());
    }
    shown
}

fn shortened_word(word: &[u8]) -> Box<[u8]> {
    let Some((kept, more)) =
        word.split_at_checked(ARGUMENT_BYTES_MAX).filter(|it| !it.1.is_empty())
    else {
        return word.into();
    };
    [kept, format!("... ({} more bytes)", more.len()).as_bytes()].concat().into()
}
