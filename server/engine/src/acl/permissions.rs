//! What a command needs to be permitted, and what may be refused.

use std::cell::OnceCell;

use bitflags::bitflags;

use crate::command::{Entry, KeySpec};

bitflags! {
    /// The access to a key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Access: u8 {
        /// Reading: the value reaches the client or another key.
        const READ = 1;
        /// Writing: the key is changed.
        const WRITE = 1 << 1;
        /// Both.
        const ALL = Access::READ.bits() | Access::WRITE.bits();
    }
}

impl Access {
    /// What the flags of a key require. Metadata, such as whether it exists, requires nothing
    /// except a pattern that the key matches.
    fn of(flags: &[&str]) -> Access {
        let has = |flag: &str| flags.contains(&flag);
        let mut access = Access::empty();
        access.set(Access::READ, has("access"));
        access.set(Access::WRITE, has("insert") || has("delete") || has("update"));
        access
    }
}

/// Which arguments of a command are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// The first one.
    First,
    /// All of them.
    All,
    /// All of them, as patterns.
    AllPatterns,
}

/// What is refused. A later variant has permitted more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// The command.
    Command,
    /// The key at this place among the arguments.
    Key(usize),
    /// The channel at this place.
    Channel(usize),
}

/// A command with its arguments.
pub(crate) struct Request<'a> {
    pub(super) entry: &'static Entry,
    pub(super) argv: &'a [&'a [u8]],
    /// The places of the keys, found once for all selectors.
    keys: OnceCell<Vec<(usize, Access)>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(entry: &'static Entry, argv: &'a [&'a [u8]]) -> Request<'a> {
        Request { entry, argv, keys: OnceCell::new() }
    }

    /// The places of the keys. Arguments in which they cannot be found are refused by the command
    /// itself.
    pub(super) fn keys(&self) -> &[(usize, Access)] {
        self.keys.get_or_init(|| {
            let (mut keys, mut places) = (Vec::new(), Vec::new());
            let command = self.entry.command;
            let is_key = |spec: &&KeySpec| !spec.flags.contains(&"not_key");
            for spec in command.keys.iter().filter(is_key) {
                places.clear();
                spec.places(self.argv, &mut places);
                let access = Access::of(command.key_flags(spec, self.argv));
                keys.extend(places.iter().map(|&place| (place, access)));
            }
            keys
        })
    }
}

impl Denial {
    /// What is refused, with the name of the key or channel: the reply of `ACL DRYRUN`.
    pub(crate) fn text(self, user: &[u8], entry: &Entry, object: &[u8]) -> String {
        let (user, object) = (String::from_utf8_lossy(user), String::from_utf8_lossy(object));
        match self {
            Denial::Command => {
                let name = &entry.full_name;
                format!("User {user} has no permissions to run the '{name}' command")
            }
            Denial::Key(_) => {
                format!("User {user} has no permissions to access the '{object}' key")
            }
            Denial::Channel(_) => {
                format!("User {user} has no permissions to access the '{object}' channel")
            }
        }
    }
}
