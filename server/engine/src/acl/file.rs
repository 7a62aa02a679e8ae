//! ACL files: a `user` line for each user.

use std::fmt;

use super::rules::{RuleError, has_blanks, merge_selectors, shown};
use super::user::User;
use super::{DEFAULT_USER, Users};
use crate::command::CommandTable;
use crate::settings::Settings;

/// The file of `aclfile`. Implemented by the caller of the engine, which has access to files.
pub trait AclFile: Send {
    /// The name of the file, for errors.
    fn name(&self) -> &str;

    /// What reads the file.
    fn reader(&self) -> AclFileReader;

    /// Replaces the contents of the file: all or nothing.
    ///
    /// # Errors
    /// If that fails. The reason is in the log of the server.
    fn write(&mut self, text: &[u8]) -> Result<(), WriteFailed>;
}

/// Reads the ACL file. It may take long, and is called without the engine. An error is the reason,
/// for the client.
pub type AclFileReader = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// The ACL file could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFailed;

impl fmt::Display for WriteFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ACL file could not be written")
    }
}

impl Users {
    /// The users of an ACL file. If the default user is not among them, it is that of
    /// `requirepass`.
    ///
    /// # Errors
    /// With all errors of the file.
    pub(crate) fn from_file(
        name: &str,
        text: &[u8],
        commands: &CommandTable,
        settings: &Settings,
    ) -> Result<Users, String> {
        let default = User::first(commands, settings.requirepass.as_ref());
        let mut users = Users::new(default);
        let (mut errors, mut has_default) = (String::new(), false);
        for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let place = format!("{name}:{}", index + 1);
            match read_line(line, &place, commands, settings) {
                Err(error) => errors.push_str(&error),
                Ok(user) => {
                    let is_default = user.name() == DEFAULT_USER;
                    let exists =
                        if is_default { has_default } else { users.get(user.name()).is_some() };
                    if exists {
                        let name = String::from_utf8_lossy(user.name()).into_owned();
                        let line = index + 1;
                        errors.push_str(&format!(
                            "WARNING: Duplicate user '{name}' found on line {line}. "
                        ));
                    }
                    has_default |= is_default;
                    users.insert(user);
                }
            }
        }
        if errors.is_empty() {
            return Ok(users);
        }
        Err(errors
            + "WARNING: ACL errors detected, no change to the previously active ACL rules was \
               performed")
    }

    /// The text of an ACL file with these users.
    pub(crate) fn to_file(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for user in self.iter() {
            text.extend_from_slice(&user.line());
            text.push(b'\n');
        }
        text
    }
}

/// Reads the line of a user. An error is about all that is wrong in it.
pub(crate) fn read_line(
    line: &[u8],
    place: &str,
    commands: &CommandTable,
    settings: &Settings,
) -> Result<User, String> {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [b"user", name, words @ ..] = &words[..] else {
        return Err(format!("{place} should start with user keyword followed by the username. "));
    };
    if has_blanks(name) {
        let name = String::from_utf8_lossy(name);
        return Err(format!("'{place}: username '{name}' contains invalid characters. "));
    }
    let rules = merge_selectors(words)
        .map_err(|_| format!("{place}: Unmatched parenthesis in selector definition."))?;
    let all_channels = settings.acl_pubsub_default.allows_all();
    let mut user = User::new(name, commands, all_channels);
    let (mut errors, mut has_other) = (String::new(), false);
    for rule in &rules {
        let rule = rule.trim_ascii();
        match user.apply(rule, commands, all_channels) {
            Ok(()) => {}
            Err(error @ RuleError::Unknown) => {
                let rule = shown(rule);
                let text = format!("{place}: Error in applying operation '{rule}': {error}. ");
                errors.push_str(&text);
            }
            // What follows may be wrong only because of the first one.
            Err(_) if has_other => {}
            Err(error) => {
                errors.push_str(&format!("{place}: {error}. "));
                has_other = true;
            }
        }
    }
    if errors.is_empty() { Ok(user) } else { Err(errors) }
}

/// The error of `ACL LOAD` and `ACL SAVE` without a file.
pub(crate) const NO_FILE: &str = "This Redis instance is not configured to use an ACL file. You \
    may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE \
    (assuming you have a Redis configuration file set) in order to store users in the Redis \
    configuration.";
