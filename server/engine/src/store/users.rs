//! The users of a server whose log is replicated, a part of the state: their rules as text, since
//! what they mean depends on the commands of the server. Only the [`Writer`] changes them.

use std::collections::BTreeMap;

use super::apply::ApplyError;
use super::effects::Effect;
use super::writer::Writer;

/// The rules of each user by name.
pub type UserRules = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The replicated users of the state.
#[derive(Debug, Default)]
pub struct ReplicatedUsers {
    /// `None` if no command has changed users: then they are those of the configuration.
    rules: Option<UserRules>,
    /// Whether effects have changed them since [`Writer::take_users_changed`]. This is not a part
    /// of the state.
    have_changed: bool,
}

impl ReplicatedUsers {
    /// The rules of all users; `None` if the users are those of the configuration.
    pub fn rules(&self) -> Option<&UserRules> {
        self.rules.as_ref()
    }

    /// The effects that make these users of none.
    pub(super) fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        let cleared = self.rules.iter().map(|_| Effect::UsersCleared {});
        let all = self.rules.iter().flatten();
        cleared.chain(all.map(|(name, rules)| Effect::UserSet { name, rules }))
    }

    /// Applies an effect on users.
    pub(super) fn apply(&mut self, effect: &Effect<'_>) -> Result<(), ApplyError> {
        self.have_changed = true;
        if let Effect::UsersCleared {} = effect {
            self.rules = Some(UserRules::new());
            return Ok(());
        }
        let all = self.rules.as_mut().ok_or(ApplyError::Missing)?;
        match *effect {
            Effect::UserSet { name, rules } => drop(all.insert(name.into(), rules.into())),
            Effect::UserRemoved { name } => drop(all.remove(name).ok_or(ApplyError::Missing)?),
            _ => return Err(ApplyError::Missing),
        }
        Ok(())
    }

    /// Discards the replicated users: those of the configuration apply again.
    pub(super) fn clear(&mut self) {
        *self = ReplicatedUsers { rules: None, have_changed: true };
    }

    /// Replaces all users, and passes the differences as effects to `record`.
    fn replace(&mut self, all: UserRules, mut record: impl FnMut(&Effect<'_>)) {
        if self.rules.is_none() {
            record(&Effect::UsersCleared {});
        }
        let before = self.rules.replace(all).unwrap_or_default();
        let all = self.rules.iter().flatten();
        for (name, rules) in all.filter(|(name, rules)| before.get(*name) != Some(*rules)) {
            record(&Effect::UserSet { name, rules });
        }
        let is_left = |name: &[u8]| self.rules.as_ref().is_some_and(|all| all.contains_key(name));
        for name in before.keys().filter(|name| !is_left(name)) {
            record(&Effect::UserRemoved { name });
        }
    }
}

impl Writer {
    /// Replaces all users.
    pub fn set_users(&mut self, all: UserRules) {
        let mut users = std::mem::take(&mut self.state.users);
        users.replace(all, |effect| self.record_global(effect));
        self.state.users = users;
    }

    /// Whether effects of another writer have changed the users since the last call.
    pub fn take_users_changed(&mut self) -> bool {
        std::mem::take(&mut self.state.users.have_changed)
    }
}
