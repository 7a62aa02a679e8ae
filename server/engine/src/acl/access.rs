//! The users of an engine, and what a connection may do.

use std::sync::Arc;

use crate::acl::log::AclLog;
use crate::acl::user::User;
use crate::acl::{AclFile, Users};
use crate::command::CommandTable;
use crate::run::gates::Conditions;
use crate::settings::Settings;

/// The users of an engine.
pub(crate) struct AccessControl {
    pub(crate) users: Users,
    /// The users at the start, to which a reset returns.
    pub(crate) first_users: Users,
    /// The users of a server whose state has none: `first_users`, with the password that
    /// `requirepass` has now.
    pub(crate) configured_users: Users,
    /// Whether changes by commands are effects: the server has followed or led.
    pub(crate) are_replicated: bool,
    /// The user of the program that embeds the server, which may do everything.
    pub(crate) embedding: Arc<User>,
    /// A user that may do nothing: that of a client whose own was removed, until it is closed. A
    /// password for an unknown name is compared with those of this user, so that the refusal takes
    /// the same time.
    pub(crate) closed: Arc<User>,
    /// The log of refusals.
    pub(crate) log: AclLog,
    /// The file of `aclfile`, if there is one.
    pub(crate) file: Option<Box<dyn AclFile>>,
    /// The error in the users of the configuration. Until it is reported, no client can
    /// authenticate.
    pub(crate) error: Option<String>,
}

impl AccessControl {
    /// The users of the configuration.
    pub(crate) fn new(settings: &Settings, commands: &CommandTable) -> AccessControl {
        let closed = User::closed(commands);
        let (users, error) = match Users::of(settings, commands) {
            Ok(users) => (users, None),
            Err(error) => (Users::new(closed.clone()), Some(error)),
        };
        AccessControl {
            first_users: users.clone(),
            configured_users: users.clone(),
            users,
            are_replicated: false,
            embedding: Arc::new(User::first(commands, None)),
            closed: Arc::new(closed),
            log: AclLog::default(),
            file: None,
            error,
        }
    }

    /// The identity of a client that has connected.
    pub(crate) fn first_identity(&self, is_in_process: bool) -> Identity {
        let default = self.users.default_user();
        let mut identity = Identity {
            user: Arc::clone(if is_in_process { &self.embedding } else { default }),
            has_authenticated: is_in_process || default.is_open(),
            conditions: Conditions::empty(),
        };
        identity.update(default);
        identity
    }
}

/// What a connection may do.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) user: Arc<User>,
    /// Whether it has authenticated, or needed no password when it connected.
    pub(crate) has_authenticated: bool,
    /// `UNAUTHENTICATED` and `RESTRICTED`, which follow from the users.
    pub(crate) conditions: Conditions,
}

impl Identity {
    /// The conditions of gates.
    #[inline(always)]
    pub(crate) fn conditions(&self) -> Conditions {
        self.conditions
    }

    /// Whether the client may send commands.
    pub fn is_authenticated(&self) -> bool {
        !self.conditions.contains(Conditions::UNAUTHENTICATED)
    }

    /// The name of its user.
    pub fn user_name(&self) -> &[u8] {
        self.user.name()
    }

    pub(crate) fn update(&mut self, default: &User) {
        let is_refused = !self.has_authenticated && !default.is_open();
        self.conditions.set(Conditions::UNAUTHENTICATED, is_refused);
        self.conditions.set(Conditions::RESTRICTED, !self.user.is_unrestricted());
    }
}
