//! The rules of `ACL SETUSER`, of ACL files and of `user` lines.

use std::fmt;

use super::permissions::Access;
use super::selector::{KeyPattern, Selector};
use super::user::{PasswordHash, User};
use crate::command::{Categories, CommandTable};
use crate::settings::REDACTED;
use crate::settings::{Secret, Settings};

/// Why a rule is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// There is no such command or category.
    Unknown,
    /// It is no rule.
    Syntax,
    /// A pattern of keys follows the one of all keys.
    AfterAllKeys,
    /// A pattern of channels follows the one of all channels.
    AfterAllChannels,
    /// The password to be removed does not exist.
    NoSuchPassword,
    /// The hash of a password is malformed.
    MalformedHash,
    /// A first argument of a subcommand.
    FirstArgumentOfSubcommand,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::Syntax => "Syntax error",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                 and does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::MalformedHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            RuleError::FirstArgumentOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported"
            }
        })
    }
}

/// Whether a text contains white space or a null character, which names and patterns must not.
pub(crate) fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|&byte| byte.is_ascii_whitespace() || matches!(byte, 0x0b | 0))
}

/// The text of a rule for an error, up to a sign that a password may follow: at the beginning, in a
/// selector, or after a blank.
pub(crate) fn shown(rule: &[u8]) -> String {
    let is_sign = |&at: &usize| {
        let begins = at == 0 || rule[at - 1] == b'(' || has_blanks(&rule[at - 1..at]);
        begins && matches!(rule[at], b'>' | b'<' | b'#' | b'!')
    };
    match (0..rule.len()).find(is_sign) {
        Some(at) => String::from_utf8_lossy(&[&rule[..=at], REDACTED].concat()).into_owned(),
        None => String::from_utf8_lossy(rule).into_owned(),
    }
}

/// Joins selectors that are spread over several words.
///
/// # Errors
/// With the word that opens a parenthesis that no other closes.
pub fn merge_selectors<'a>(words: &[&'a [u8]]) -> Result<Vec<Vec<u8>>, &'a [u8]> {
    let mut rules: Vec<Vec<u8>> = Vec::with_capacity(words.len());
    let mut open: Option<&[u8]> = None;
    for &word in words {
        match (open, rules.last_mut()) {
            (Some(_), Some(selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                open = open.filter(|_| !word.ends_with(b")"));
            }
            _ => {
                rules.push(word.to_vec());
                open = (word.starts_with(b"(") && !word.ends_with(b")")).then_some(word);
            }
        }
    }
    open.map_or(Ok(rules), Err)
}

/// The message for a parenthesis that is not closed.
pub(crate) fn unmatched(word: &[u8]) -> String {
    let word = shown(word);
    format!("Unmatched parenthesis in acl selector starting at '{word}'.")
}

impl User {
    /// Applies one rule.
    pub(super) fn apply(
        &mut self,
        rule: &[u8],
        commands: &CommandTable,
        all_channels: bool,
    ) -> Result<(), RuleError> {
        match &rule.to_ascii_lowercase()[..] {
            b"" => {}
            b"on" => self.is_enabled = true,
            b"off" => self.is_enabled = false,
            b"skip-sanitize-payload" => self.skips_sanitizing = true,
            b"sanitize-payload" => self.skips_sanitizing = false,
            word @ (b"nopass" | b"resetpass") => {
                self.needs_no_password = *word == *b"nopass";
                self.passwords.clear();
            }
            b"clearselectors" => self.selectors.clear(),
            b"reset" => *self = User::new(self.name(), commands, all_channels),
            _ => return self.apply_other(rule, commands, all_channels),
        }
        Ok(())
    }

    fn apply_other(
        &mut self,
        rule: &[u8],
        commands: &CommandTable,
        all_channels: bool,
    ) -> Result<(), RuleError> {
        match *rule {
            [b'>' | b'#', ..] => {
                let hash = password_hash(rule)?;
                if !self.passwords.contains(&hash) {
                    self.passwords.push(hash);
                }
                self.needs_no_password = false;
            }
            [b'<' | b'!', ..] => {
                let hash = password_hash(rule)?;
                let found = self.passwords.iter().position(|known| *known == hash);
                self.passwords.remove(found.ok_or(RuleError::NoSuchPassword)?);
            }
            [b'(', ref inner @ .., b')'] => {
                let mut selector = Selector::new(commands, all_channels);
                let words = inner.split(|&byte| has_blanks(&[byte]));
                for word in words.filter(|word| !word.is_empty()) {
                    // The end of the selector could not be found in a file.
                    if word.ends_with(b")") {
                        return Err(RuleError::Syntax);
                    }
                    selector.apply(word, commands)?;
                }
                self.selectors.push(selector);
            }
            _ => self.root.apply(rule, commands)?,
        }
        Ok(())
    }
}

fn password_hash(rule: &[u8]) -> Result<PasswordHash, RuleError> {
    match rule[0] {
        b'>' | b'<' => Ok(PasswordHash::of(&rule[1..])),
        _ => PasswordHash::parse(&rule[1..]).ok_or(RuleError::MalformedHash),
    }
}

impl Selector {
    /// Applies one rule.
    fn apply(&mut self, rule: &[u8], commands: &CommandTable) -> Result<(), RuleError> {
        match &rule.to_ascii_lowercase()[..] {
            b"allkeys" | b"~*" => self.set_all_keys(true),
            b"resetkeys" => self.set_all_keys(false),
            b"allchannels" | b"&*" => self.set_all_channels(true),
            b"resetchannels" => self.set_all_channels(false),
            b"allcommands" | b"+@all" => self.set_all_commands(true),
            b"nocommands" | b"-@all" => self.set_all_commands(false),
            _ => match *rule {
                [b'~' | b'%', ..] => self.add_keys(rule)?,
                [b'&', ref pattern @ ..] => self.add_channels(pattern)?,
                [sign @ (b'+' | b'-'), b'@', ref name @ ..] => {
                    self.set_category(sign, name, commands)?;
                }
                [b'+', ref name @ ..] if name.contains(&b'|') => {
                    self.allow_part(name, commands)?;
                }
                [sign @ (b'+' | b'-'), ref name @ ..] => {
                    let entry = commands.find_full_name(name).ok_or(RuleError::Unknown)?;
                    self.set_command(entry, sign == b'+');
                    self.add_command_rule(sign, entry.full_name.as_bytes());
                }
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let tilde = rule.iter().position(|&byte| byte == b'~').ok_or(RuleError::Syntax)?;
        let (kind, pattern) = (&rule[..tilde], &rule[tilde + 1..]);
        let access = match &kind.to_ascii_uppercase()[..] {
            b"" | b"%RW" | b"%WR" => Access::ALL,
            b"%R" => Access::READ,
            b"%W" => Access::WRITE,
            _ => return Err(RuleError::Syntax),
        };
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| *known.pattern == *pattern) {
            Some(known) => known.access |= access,
            None => self.keys.push(KeyPattern { pattern: pattern.into(), access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| **known == *pattern) {
            self.channels.push(pattern.into());
        }
        Ok(())
    }

    fn set_category(
        &mut self,
        sign: u8,
        name: &[u8],
        commands: &CommandTable,
    ) -> Result<(), RuleError> {
        let category = Categories::named(name).ok_or(RuleError::Unknown)?;
        let is_in = |command: &crate::command::Command| command.all_categories().contains(category);
        for entry in commands.entries().iter().filter(|entry| is_in(entry.command)) {
            self.set_command(entry, sign == b'+');
        }
        self.add_command_rule(sign, &[b"@", name].concat());
        Ok(())
    }

    /// Permits a subcommand, or a command with a first argument: `config|get`, `select|0`.
    fn allow_part(&mut self, name: &[u8], commands: &CommandTable) -> Result<(), RuleError> {
        let bar = name.iter().rposition(|&byte| byte == b'|').ok_or(RuleError::Syntax)?;
        let (parent, part) = (&name[..bar], &name[bar + 1..]);
        let entry = commands.find_full_name(parent).ok_or(RuleError::Unknown)?;
        if parent.contains(&b'|') {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if part.is_empty() || has_blanks(part) {
            return Err(RuleError::Syntax);
        }
        if entry.subcommands.is_empty() {
            let pair = (entry.at, part.to_ascii_lowercase().into());
            if !self.first_arguments.contains(&pair) {
                self.first_arguments.push(pair);
            }
        } else {
            let subcommand = commands.find_full_name(name).ok_or(RuleError::Unknown)?;
            self.set_command(subcommand, true);
        }
        self.add_command_rule(b'+', name);
        Ok(())
    }
}

/// A user in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredUser {
    name: String,
    rules: Vec<Secret>,
}

impl ConfiguredUser {
    /// Reads the words after `user`. Commands are looked up later, since they depend on other
    /// directives.
    ///
    /// # Errors
    /// If a rule is wrong.
    pub fn parse(words: &[&str]) -> Result<ConfiguredUser, String> {
        let [name, words @ ..] = words else {
            return Err("Bad directive or wrong number of arguments".into());
        };
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let rules = merge_selectors(&words).map_err(unmatched)?;
        let commands = CommandTable::of(Default::default(), Default::default());
        let mut user = User::new(name.as_bytes(), commands, false);
        for rule in &rules {
            match user.apply(rule, commands, false) {
                Ok(()) | Err(RuleError::Unknown) => {}
                Err(error) => {
                    return Err(format!("Error in user declaration '{}': {error}", shown(rule)));
                }
            }
        }
        let secret = |rule: Vec<u8>| Secret::new(String::from_utf8_lossy(&rule));
        Ok(ConfiguredUser {
            name: (*name).to_owned(),
            rules: rules.into_iter().map(secret).collect(),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user.
    pub(super) fn user(
        &self,
        commands: &CommandTable,
        settings: &Settings,
    ) -> Result<User, String> {
        if has_blanks(self.name.as_bytes()) {
            return Err("Spaces not allowed in ACL usernames".into());
        }
        let all_channels = settings.acl_pubsub_default.allows_all();
        let rules = self.rules.iter().map(|rule| rule.expose().as_bytes());
        let user = User::new(self.name.as_bytes(), commands, all_channels);
        user.with_rules(rules, commands, all_channels).map_err(|(rule, error)| {
            let (rule, name) = (shown(rule), &self.name);
            format!("Error loading ACL rule '{rule}' for the user named '{name}': {error}")
        })
    }
}
