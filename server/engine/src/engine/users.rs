//! Users and connections: authentication, the check of a command, and what happens to connections
//! when users change.

use std::sync::Arc;

use crate::Engine;
use crate::acl::file::NO_FILE;
use crate::acl::log::{AclLog, LogEntry, Reason};
use crate::acl::permissions::{Denial, Request};
use crate::acl::user::{PasswordHash, ReadableKeys, User};
use crate::acl::{AclFile, Users};
use crate::command::Entry;
use crate::engine::files::Files;
use crate::error::Error;
use crate::run::gates::{Invocation, Paths};
use crate::sessions::ClientId;
use crate::timing::time::Time;

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
                .read_acl_file(None)
                .map_err(|errors| format!("Aborting startup because of ACL errors: {errors}"))?;
            self.change_users(users, None);
        }
        self.access.first_users = self.access.users.clone();
        self.access.configured_users = self.access.users.clone();
        Ok(())
    }

    /// The users of the ACL file: of what was read for the request of the caller, or as it is
    /// now.
    ///
    /// # Errors
    /// If there is no file, or it cannot be read or is not valid; the text describes the reason.
    pub(crate) fn read_acl_file(&mut self, caller: Option<ClientId>) -> Result<Users, String> {
        let read = caller.and_then(|caller| self.take_files(caller));
        let Some(file) = self.access.file.as_ref() else { return Err(NO_FILE.into()) };
        let text = match read {
            Some(Files::Users(text)) => text,
            _ => file.reader()(),
        };
        self.file_reads.void();
        let text = text.map_err(|reason| {
            format!("Error loading ACLs, opening file '{}': {reason}", file.name())
        })?;
        Users::from_file(file.name(), &text, self.commands, &self.settings)
    }

    /// Writes the users to the ACL file.
    ///
    /// # Errors
    /// If there is no file, or it cannot be written; the text describes the reason.
    pub(crate) fn save_users(&mut self) -> Result<(), String> {
        let Some(file) = self.access.file.as_mut() else { return Err(NO_FILE.into()) };
        file.write(&self.access.users.to_file()).map_err(|_| NOT_SAVED.into())
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
                Some(new) => {
                    let channels = session.channels.iter().chain(&session.shard_channels);
                    !new.permits_subscriptions(channels, session.patterns.iter())
                }
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

/// The error for an ACL file that could not be written.
const NOT_SAVED: &str = "There was an error trying to save the ACLs. Please check the server logs \
    for more information";

/// The error for users in both places.
const TWO_SOURCES: &str = "Users in the configuration file and an ACL file at the same time would \
    lead to errors and security holes: define users in one of them only.";
