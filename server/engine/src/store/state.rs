//! The replicated state: all that effects change, and nothing else. Equal effects on equal states
//! give equal states. Sessions, cached scripts, settings and statistics are not part of it; what a
//! [`Keyspace`] holds besides its keys (caches, timers, memory that is not freed yet, the time of
//! the last use of a key) does not count.

use super::Keyspace;
use super::libraries::Libraries;
use super::users::ReplicatedUsers;

/// The replicated state. In an engine, only the [`Writer`] changes it.
///
/// [`Writer`]: super::writer::Writer
pub struct State {
    pub(super) keyspace: Keyspace,
    /// The function libraries; `None` while a function runs.
    pub(super) libraries: Option<Libraries>,
    pub(super) users: ReplicatedUsers,
    /// The last fencing token that was given out; 0 for none.
    pub(super) last_token: u64,
}

impl State {
    /// A state of these databases and function libraries.
    pub fn new(keyspace: Keyspace, libraries: Libraries) -> State {
        let users = ReplicatedUsers::default();
        State { keyspace, libraries: Some(libraries), users, last_token: 0 }
    }

    /// The users, if the log is replicated.
    pub fn users(&self) -> &ReplicatedUsers {
        &self.users
    }
}
