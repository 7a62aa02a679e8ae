//! A user: whether it is enabled, its passwords, and its selectors.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::DEFAULT_USER;
use super::permissions::{Access, Denial, Request};
use super::rules::RuleError;
use super::selector::{Selector, may_use_channel};
use crate::command::{CommandTable, Flags};
use crate::settings::Secret;

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PasswordHash([u8; 32]);

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl PasswordHash {
    /// The hash of a password.
    pub(crate) fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(Sha256::digest(password).into())
    }

    /// Reads 64 lowercase hexadecimal digits.
    pub(crate) fn parse(digits: &[u8]) -> Option<PasswordHash> {
        let (pairs, rest) = digits.as_chunks::<2>();
        let pairs: &[[u8; 2]; 32] = pairs.try_into().ok().filter(|_| rest.is_empty())?;
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        for (byte, &[high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(PasswordHash(hash))
    }

    /// 64 lowercase hexadecimal digits.
    pub(crate) fn digits(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A user of the ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: Box<[u8]>,
    /// Whether clients may authenticate as this user.
    pub(super) is_enabled: bool,
    /// Whether any password is right.
    pub(super) needs_no_password: bool,
    /// Whether `RESTORE` may skip its checks. This server never does.
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<PasswordHash>,
    /// The permissions outside of parentheses.
    pub(super) root: Selector,
    /// Further permissions: a command is permitted if one selector permits all of it.
    pub(super) selectors: Vec<Selector>,
}

/// Keys that may be read by one command; all without selectors.
#[derive(Debug)]
pub(crate) struct ReadableKeys<'u>(Option<Vec<&'u Selector>>);

impl ReadableKeys<'_> {
    /// Every key.
    pub(crate) const ALL: ReadableKeys<'static> = ReadableKeys(None);

    /// Whether a key is one of them.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let permits = |selector: &&Selector| selector.may_access(key, Access::READ);
        self.0.as_ref().is_none_or(|selectors| selectors.iter().any(permits))
    }
}

impl User {
    /// A user that may do nothing yet. `all_channels` is the rule of `acl-pubsub-default`.
    pub fn new(name: &[u8], commands: &CommandTable, all_channels: bool) -> User {
        User {
            name: name.into(),
            is_enabled: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            root: Selector::new(commands, all_channels),
            selectors: Vec::new(),
        }
    }

    /// A user that may do everything, with this password if there is one: the default user, unless
    /// the configuration changes it.
    pub(crate) fn first(commands: &CommandTable, password: Option<&Secret>) -> User {
        let mut user = User::new(DEFAULT_USER, commands, true);
        user.is_enabled = true;
        user.root.allow_everything();
        user.set_only_password(password);
        user
    }

    /// A user that cannot be used: the default user if the configuration cannot be read.
    pub(crate) fn closed(commands: &CommandTable) -> User {
        User::new(DEFAULT_USER, commands, false)
    }

    /// Replaces all passwords by this one, or by none.
    pub(crate) fn set_only_password(&mut self, password: Option<&Secret>) {
        let hash = password.map(|secret| PasswordHash::of(secret.expose().as_bytes()));
        self.needs_no_password = hash.is_none();
        self.passwords = hash.into_iter().collect();
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether connections are authenticated as this user without a password, if it is the default
    /// user.
    pub(crate) fn is_open(&self) -> bool {
        self.is_enabled && self.needs_no_password
    }

    /// Whether any password is right.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether clients may authenticate as this user with a password. All passwords are compared,
    /// each in constant time.
    pub(crate) fn accepts(&self, password: PasswordHash) -> Choice {
        let is_equal = |known: &PasswordHash| known.0.ct_eq(&password.0);
        let has = self.passwords.iter().map(is_equal).fold(Choice::from(0), |all, it| all | it);
        (has | u8::from(self.needs_no_password).into()) & u8::from(self.is_enabled).into()
    }

    /// Whether every command with any arguments is permitted.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.root.allows_everything()
    }

    /// Whether the user may subscribe to all these channels and patterns.
    pub(crate) fn permits_subscriptions<C: AsRef<[u8]>>(
        &self,
        mut channels: impl Iterator<Item = C>,
        mut patterns: impl Iterator<Item = C>,
    ) -> bool {
        if self.all_selectors().any(|selector| selector.all_channels) {
            return true;
        }
        let all = self.all_selectors().flat_map(|selector| &selector.channels);
        let permitted: Vec<Box<[u8]>> = all.cloned().collect();
        channels.all(|channel| may_use_channel(&permitted, channel.as_ref(), false))
            && patterns.all(|pattern| may_use_channel(&permitted, pattern.as_ref(), true))
    }

    /// The permissions, those outside of parentheses first.
    pub(super) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Checks whether one selector permits a command.
    ///
    /// # Errors
    /// With what the selector that permits most refuses.
    pub(crate) fn check(&self, request: &Request<'_>) -> Result<(), Denial> {
        // Commands before authentication are for all users.
        if request.entry.command.flags.contains(Flags::NO_AUTH) {
            return Ok(());
        }
        let mut denied = Denial::Command;
        for selector in self.all_selectors() {
            match selector.check(request) {
                Ok(()) => return Ok(()),
                Err(denial) => denied = denied.max(denial),
            }
        }
        Err(denied)
    }

    /// The keys that the selectors which permit a command permit to read.
    pub(crate) fn readable_keys(&self, request: &Request<'_>) -> ReadableKeys<'_> {
        let selectors = self.all_selectors().filter(|selector| selector.check(request).is_ok());
        ReadableKeys(Some(selectors.collect()))
    }

    /// Whether one selector permits a command and gives it read access to every key.
    pub(crate) fn may_read_all_keys(&self, request: &Request<'_>) -> bool {
        let mut selectors = self.all_selectors();
        selectors.any(|it| it.check(request).is_ok() && it.may_read_all_keys())
    }

    /// The words that are flags, in the order of Redis.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_enabled { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        let skips = self.skips_sanitizing;
        flags.push(if skips { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    /// The hashes of the passwords, as hexadecimal digits.
    pub(crate) fn password_digits(&self) -> impl Iterator<Item = String> {
        self.passwords.iter().map(|hash| hash.digits())
    }

    /// Its root selector and the others.
    pub(crate) fn selectors(&self) -> (&Selector, &[Selector]) {
        (&self.root, &self.selectors)
    }

    /// The line that describes it: `user name` and its rules.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", self.name(), b" ", &*self.rules()].concat()
    }

    /// Rules that make the same user.
    pub(crate) fn rules(&self) -> Vec<u8> {
        let mut rules = self.flags().join(" ").into_bytes();
        for digits in self.password_digits() {
            rules.extend_from_slice(b" #");
            rules.extend_from_slice(digits.as_bytes());
        }
        rules.push(b' ');
        rules.extend_from_slice(&self.root.rules());
        for selector in &self.selectors {
            rules.extend_from_slice(&[b" (", &*selector.rules(), b")"].concat());
        }
        rules
    }

    /// Returns this user with rules applied in this order.
    ///
    /// # Errors
    /// With the first rule that is wrong, and why.
    pub fn with_rules<'a>(
        &self,
        rules: impl IntoIterator<Item = &'a [u8]>,
        commands: &CommandTable,
        all_channels: bool,
    ) -> Result<User, (&'a [u8], RuleError)> {
        let mut user = self.clone();
        for rule in rules {
            user.apply(rule, commands, all_channels).map_err(|error| (rule, error))?;
        }
        Ok(user)
    }
}
