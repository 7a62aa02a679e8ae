//! All users of a server, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::user::User;
use crate::command::CommandTable;
use crate::settings::Settings;

/// The name of the user of connections that have not authenticated.
pub const DEFAULT_USER: &[u8] = b"default";

/// All users by name.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Box<[u8]>, Arc<User>>,
    default: Arc<User>,
}

impl Users {
    /// The default user alone.
    pub(crate) fn new(default: User) -> Users {
        let default = Arc::new(default);
        let by_name = BTreeMap::from([(DEFAULT_USER.into(), Arc::clone(&default))]);
        Users { by_name, default }
    }

    /// The users of the configuration.
    ///
    /// # Errors
    /// With a line for the log if a rule is wrong.
    pub(crate) fn of(settings: &Settings, commands: &CommandTable) -> Result<Users, String> {
        let mut users = Users::new(User::first(commands, settings.requirepass.as_ref()));
        for configured in &settings.users {
            users.insert(configured.user(commands, settings)?);
        }
        Ok(users)
    }

    /// The default user.
    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// The user of that name.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Adds a user, or replaces the one of its name.
    pub(crate) fn insert(&mut self, user: User) -> Arc<User> {
        let user = Arc::new(user);
        if user.name() == DEFAULT_USER {
            self.default = Arc::clone(&user);
        }
        self.by_name.insert(user.name().into(), Arc::clone(&user));
        user
    }

    /// Removes a user. The default user stays.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<User>> {
        if name == DEFAULT_USER { None } else { self.by_name.remove(name) }
    }

    /// Whether any user may not do everything.
    pub(crate) fn has_restricted(&self) -> bool {
        self.iter().any(|user| !user.is_unrestricted())
    }

    /// All users, in the order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }
}
