//! Users and connections: authentication, the check of a command, and what happens to connections
//! when users change.

use std::sync::Arc;

use super::log::{AclLog, LogEntry, Reason};
use super::permissions::{Denial, Request};
use super::selector::may_use_channel;
use super::user::{PasswordHash, ReadableKeys, User};
use super::{AclFile, Users};
use crate::Engine;
use crate::command::{CommandTable, Entry};
use crate::error::Error;
use crate::gates::{Conditions, Invocation, Paths};
use crate::sessions::{ClientId, Session};
use crate::settings::Settings;
use crate::time::Time;

/// The users of an engine.
pub(crate) struct AccessControl {
    users: Users,
    /// The users at the start, to which a reset returns.
    first_users: Users,
    /// As `first_users`, with the password that `requirepass` has now.
    configured_users: Users,
    /// Whether changes by commands are effects: the server has followed or led.
    pub(crate) are_replicated: bool,
    /// The user of the program that embeds the server, which may do everything.
    embedding: Arc<User>,
    /// A user that may do nothing: that of a client whose own was removed, until it is closed.
    /// Passwords are compared with where there is no user of that name, so that this takes the same
    /// time.
    closed: Arc<User>,
    /// The log of refusals.
    pub(crate) log: AclLog,
    /// The file of `aclfile`, if there is one.
    pub(crate) file: Option<Box<dyn AclFile>>,
    /// What is wrong with the users of the configuration. Until it is reported, no client can
    /// authenticate.
    error: Option<String>,
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

    /// All users.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The users of a server whose state has none.
    pub(super) fn configured_users(&self) -> &Users {
        &self.configured_users
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
    user: Arc<User>,
    /// Whether it has authenticated, or needed no password when it connected.
    has_authenticated: bool,
    /// `UNAUTHENTICATED` and `RESTRICTED`, which follow from the users.
    conditions: Conditions,
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

    fn update(&mut self, default: &User) {
        let is_refused = !self.has_authenticated && !default.is_open();
        self.conditions.set(Conditions::UNAUTHENTICATED, is_refused);
        self.conditions.set(Conditions::RESTRICTED, !self.user.is_unrestricted());
    }
}

impl Engine {
    /// Loads the users of the ACL file, if there is one. Called once, at the start.
    ///
    /// # Errors
    /// With a line for the log if the users of the configuration or of the file are wrong.
    pub fn load_users(&mut self, file: Option<Box<dyn AclFile>>) -> Result<(), String> {
        if let Some(error) = self.access.error.take() {
            return Err(error);
        }
        self.access.file = file;
        if self.access.file.is_some() {
            if !self.settings.users.is_empty() {
                return Err(TWO_SOURCES.into());
            }
            let users = self
                .read_acl_file()
                .map_err(|errors| format!("Aborting startup because of ACL errors: {errors}"))?;
            self.change_users(users, None);
        }
        self.access.first_users = self.access.users.clone();
        self.access.configured_users = self.access.users.clone();
        Ok(())
    }

    /// Reads the users of the ACL file.
    pub(crate) fn read_acl_file(&mut self) -> Result<Users, String> {
        let Some(file) = self.access.file.as_mut() else { return Err(NO_FILE.into()) };
        let text = file.read().map_err(|reason| {
            format!("Error loading ACLs, opening file '{}': {reason}", file.name())
        })?;
        Users::from_file(file.name(), &text, self.commands, &self.settings)
    }

    /// Authenticates a client if user and password are right.
    pub(crate) fn authenticate(
        &mut self,
        client: ClientId,
        [command, name, password]: [&[u8]; 3],
        time: Time,
    ) -> Result<(), Error> {
        let password = PasswordHash::of(password);
        let user = self.access.users.get(name);
        let is_right = user.unwrap_or(&self.access.closed).accepts(password);
        let Some(user) = user.filter(|_| bool::from(is_right)).cloned() else {
            let context = self.log_context(client, Paths::REQUEST);
            let refused = (Reason::Authentication, context, command, name);
            self.log_refusal(client, refused, time);
            self.note_denied_authentication(client);
            return Err(Error::line(
                "WRONGPASS invalid username-password pair or user is disabled.",
            ));
        };
        let default = self.access.users.default_user();
        if let Some(session) = self.sessions.get_mut(client) {
            (session.identity.user, session.identity.has_authenticated) = (user, true);
            session.identity.update(default);
        }
        Ok(())
    }

    /// Checks whether the client's user may run a command.
    pub(crate) fn check_permission(
        &self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
    ) -> Result<(), Denial> {
        match self.sessions.get(client) {
            Some(session) => session.identity.user.check(&Request::new(entry, argv)),
            None => Ok(()),
        }
    }

    /// Whether a command of the client may read keys that it does not name.
    pub(crate) fn may_read_all_keys(
        &self,
        client: ClientId,
        entry: &'static Entry,
        argv: &[&[u8]],
    ) -> bool {
        let user = self.sessions.get(client).map(|session| &session.identity.user);
        user.is_none_or(|user| user.may_read_all_keys(&Request::new(entry, argv)))
    }

    /// The keys that a command of the client may show although it does not name them.
    pub(crate) fn readable_keys(&self, client: ClientId, argv: &[&[u8]]) -> ReadableKeys<'_> {
        let session = self.sessions.get(client);
        match (session, self.commands.find_request(argv)) {
            (Some(session), Some(entry)) => {
                session.identity.user.readable_keys(&Request::new(entry, argv))
            }
            _ => ReadableKeys::ALL,
        }
    }

    /// The error for a command that the client's user may not run. Adds the refusal to the log.
    #[cold]
    pub(crate) fn deny(&mut self, call: &Invocation<'_>, denial: Denial) -> Error {
        let Some(session) = self.sessions.get(call.client) else { return Error::NoAuth };
        let name: Box<[u8]> = session.identity.user_name().into();
        let (reason, object) = match denial {
            Denial::Command => (Reason::Command, call.entry.full_name.as_bytes()),
            Denial::Key(place) => (Reason::Key, call.argv[place]),
            Denial::Channel(place) => (Reason::Channel, call.argv[place]),
        };
        let context = self.log_context(call.client, call.path);
        self.log_refusal(call.client, (reason, context, object, &name), call.time);
        let text = match denial {
            _ if call.path == Paths::QUEUED => queued_text(denial),
            Denial::Command => denial.text(&name, call.entry, b""),
            Denial::Key(_) => "No permissions to access a key".to_owned(),
            Denial::Channel(_) => "No permissions to access a channel".to_owned(),
        };
        let prefix = match call.path {
            Paths::SCRIPT => "ERR ACL failure in script:",
            _ => "NOPERM",
        };
        Error::text(format!("{prefix} {text}"))
    }

    fn log_context(&self, client: ClientId, path: Paths) -> &'static str {
        let session = self.sessions.get(client);
        match path {
            Paths::SCRIPT => "lua",
            Paths::QUEUED => "multi",
            _ if session.is_some_and(|session| session.transaction.is_some()) => "multi",
            _ => "toplevel",
        }
    }

    fn log_refusal(
        &mut self,
        client: ClientId,
        (reason, context, object, name): (Reason, &'static str, &[u8], &[u8]),
        time: Time,
    ) {
        let Some(line) = self.client_line(client, time) else { return };
        let entry = LogEntry::new(reason, context, object, name, line, time.wall());
        let length_max = usize::try_from(self.settings.acllog_max_len).unwrap_or(usize::MAX);
        self.access.log.add(entry, length_max);
    }

    /// Gives the default user the password of `requirepass`.
    pub(crate) fn set_default_password(&mut self, caller: Option<ClientId>) {
        let mut users = self.access.users.clone();
        let mut default = User::clone(users.default_user());
        default.set_only_password(self.settings.requirepass.as_ref());
        let default = users.insert(default);
        self.access.configured_users.insert(User::clone(&default));
        self.change_users(users, caller);
    }

    /// Restores the users that there were at the start.
    pub(crate) fn reset_users(&mut self, caller: Option<ClientId>) {
        self.access.configured_users = self.access.first_users.clone();
        self.replace_users(self.access.first_users.clone(), caller);
        self.access.log = AclLog::default();
    }

    /// Replaces the users. Connections of removed users, and subscribers that have lost the right
    /// to a channel, are closed: that of `caller` after the reply.
    pub(crate) fn change_users(&mut self, users: Users, caller: Option<ClientId>) {
        let before = std::mem::replace(&mut self.access.users, users);
        self.update_gates();
        let clients: Vec<ClientId> = self.sessions.clients.all_in_order().collect();
        for client in clients {
            let Some(session) = self.sessions.get_mut(client) else { continue };
            let (users, identity) = (&self.access.users, &mut session.identity);
            let default = users.default_user();
            let name = identity.user.name();
            let is_known = before.get(name).is_some_and(|user| Arc::ptr_eq(user, &identity.user));
            let new = if is_known { users.get(name) } else { Some(&identity.user) };
            let new = new.map(Arc::clone);
            let is_lost = match &new {
                None => true,
                Some(new) if Arc::ptr_eq(new, &identity.user) => false,
                Some(new) => !new.permits_subscriptions(session),
            };
            let identity = &mut session.identity;
            identity.has_authenticated &= new.is_some();
            identity.user = new.unwrap_or_else(|| Arc::clone(&self.access.closed));
            identity.update(default);
            if is_lost {
                self.close_client(client, caller);
            }
        }
    }
}

impl User {
    /// Whether the subscriptions of a client are permitted.
    fn permits_subscriptions(&self, session: &Session) -> bool {
        if self.all_selectors().any(|selector| selector.all_channels) {
            return true;
        }
        let all = self.all_selectors().flat_map(|selector| &selector.channels);
        let permitted: Vec<Box<[u8]>> = all.cloned().collect();
        let mut channels = session.channels.iter().chain(&session.shard_channels);
        channels.all(|channel| may_use_channel(&permitted, channel, false))
            && session.patterns.iter().all(|pattern| may_use_channel(&permitted, pattern, true))
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

/// The error for a queued command that was permitted when it was queued.
fn queued_text(denial: Denial) -> String {
    let reason = match denial {
        Denial::Command => "no permission to execute the command or subcommand",
        Denial::Key(_) => "no permission to touch the specified keys",
        Denial::Channel(_) => {
            "no permission to access one of the channels used as arguments to the command"
        }
    };
    format!(
        "ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
         This command is no longer allowed for the following reason: {reason}"
    )
}

/// The error for users in both places.
const TWO_SOURCES: &str = "Users in the configuration file and an ACL file at the same time would \
    lead to errors and security holes: define users in one of them only.";

/// The error of `ACL LOAD` and `ACL SAVE` without a file.
pub(crate) const NO_FILE: &str = "This Redis instance is not configured to use an ACL file. You \
    may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE \
    (assuming you have a Redis configuration file set) in order to store users in the Redis \
    configuration.";
