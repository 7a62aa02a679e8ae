//! Permissions: the commands, keys and channels of a user, or of one of its selectors.

use super::permissions::{Access, Channels, Denial, Request};
use crate::command::{Command, CommandTable, Entry};
use crate::glob;

/// A set of commands by their positions in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandSet(Box<[u64]>);

impl CommandSet {
    fn new(commands: &CommandTable) -> CommandSet {
        CommandSet(vec![0; commands.entries().len().div_ceil(64)].into())
    }

    fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & 1 << (at % 64) != 0)
    }

    pub(super) fn set(&mut self, at: usize, allowed: bool) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word = *word & !(1 << (at % 64)) | u64::from(allowed) << (at % 64);
        }
    }

    fn fill(&mut self, allowed: bool) {
        self.0.fill(if allowed { u64::MAX } else { 0 });
    }
}

/// A pattern of keys with the access to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub(super) pattern: Box<[u8]>,
    pub(super) access: Access,
}

impl KeyPattern {
    fn rule(&self) -> Vec<u8> {
        // A pattern of all keys is not the rule `~*`, which excludes further patterns.
        let prefix: &[u8] = match self.access {
            Access::ALL if *self.pattern == *b"*" => b"%RW~",
            Access::ALL => b"~",
            Access::READ => b"%R~",
            _ => b"%W~",
        };
        [prefix, &*self.pattern].concat()
    }
}

/// The permissions of a user, or of one of its selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    /// Whether the rules of commands begin with `+@all`.
    pub(super) begins_with_all: bool,
    pub(super) allowed: CommandSet,
    /// The rules of commands after `+@all` or `-@all`, such as `+get` and `-@admin`.
    pub(super) command_rules: Vec<Box<[u8]>>,
    /// First arguments with which commands are permitted that are not permitted otherwise.
    pub(super) first_arguments: Vec<(usize, Box<[u8]>)>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Box<[u8]>>,
}

impl Selector {
    /// Permits nothing, except all channels if asked for.
    pub(super) fn new(commands: &CommandTable, all_channels: bool) -> Selector {
        Selector {
            begins_with_all: false,
            allowed: CommandSet::new(commands),
            command_rules: Vec::new(),
            first_arguments: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Permits all commands, or none.
    pub(super) fn set_all_commands(&mut self, allowed: bool) {
        self.begins_with_all = allowed;
        self.allowed.fill(allowed);
        self.command_rules.clear();
        self.first_arguments.clear();
    }

    /// Permits all keys, or none.
    pub(super) fn set_all_keys(&mut self, allowed: bool) {
        self.all_keys = allowed;
        self.keys.clear();
    }

    /// Permits all channels, or none.
    pub(super) fn set_all_channels(&mut self, allowed: bool) {
        self.all_channels = allowed;
        self.channels.clear();
    }

    /// Permits everything.
    pub(super) fn allow_everything(&mut self) {
        self.set_all_commands(true);
        self.set_all_keys(true);
        self.set_all_channels(true);
    }

    /// Whether it permits everything.
    pub(super) fn allows_everything(&self) -> bool {
        let all_commands = self.begins_with_all && self.command_rules.is_empty();
        all_commands && self.all_keys && self.all_channels
    }

    /// Permits or forbids a command with its subcommands.
    pub(super) fn set_command(&mut self, entry: &Entry, allowed: bool) {
        self.first_arguments.retain(|(at, _)| *at != entry.at);
        self.allowed.set(entry.at, allowed);
        for &subcommand in &entry.subcommands {
            self.allowed.set(subcommand, allowed);
        }
    }

    /// Keeps a rule of commands. It replaces an earlier rule of the same command or category, and
    /// those of subcommands.
    pub(super) fn add_command_rule(&mut self, sign: u8, name: &[u8]) {
        let name = name.to_ascii_lowercase();
        self.command_rules.retain(|rule| {
            let rest = rule[1..].strip_prefix(&*name);
            rest.is_none_or(|rest| !rest.is_empty() && rest[0] != b'|')
        });
        self.command_rules.push([&[sign], &*name].concat().into());
    }

    /// Checks a command.
    ///
    /// # Errors
    /// With what is refused.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), Denial> {
        if !self.allowed.contains(request.entry.at) && !self.allows_first_argument(request) {
            return Err(Denial::Command);
        }
        if !self.all_keys {
            for &(place, access) in request.keys() {
                if !self.may_access(request.argv[place], access) {
                    return Err(Denial::Key(place));
                }
            }
        }
        self.check_channels(request.entry.command, request.argv)
    }

    fn allows_first_argument(&self, request: &Request<'_>) -> bool {
        let at = request.entry.at;
        request.argv.get(1).is_some_and(|first| {
            let same = |argument: &[u8]| argument.eq_ignore_ascii_case(first);
            self.first_arguments.iter().any(|(of, argument)| *of == at && same(argument))
        })
    }

    pub(super) fn may_access(&self, key: &[u8], access: Access) -> bool {
        let covers =
            |it: &KeyPattern| it.access.contains(access) && glob::matches(&it.pattern, key);
        self.all_keys || self.keys.iter().any(covers)
    }

    /// Whether it permits to read every key.
    pub(super) fn may_read_all_keys(&self) -> bool {
        let is_all = |it: &KeyPattern| it.access.contains(Access::READ) && *it.pattern == *b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    fn check_channels(&self, command: &Command, argv: &[&[u8]]) -> Result<(), Denial> {
        let Some(channels) = command.channels.filter(|_| !self.all_channels) else {
            return Ok(());
        };
        let count = if channels == Channels::First { 1 } else { usize::MAX };
        for (place, channel) in argv.iter().enumerate().skip(1).take(count) {
            let is_pattern = channels == Channels::AllPatterns;
            if !may_use_channel(&self.channels, channel, is_pattern) {
                return Err(Denial::Channel(place));
            }
        }
        Ok(())
    }

    /// The rules of commands: `+@all` or `-@all` and what follows.
    pub(crate) fn commands_text(&self) -> Vec<u8> {
        let first: &[u8] = if self.begins_with_all { b"+@all" } else { b"-@all" };
        let rules = std::iter::once(first).chain(self.command_rules.iter().map(|it| &**it));
        rules.collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of keys.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        self.keys.iter().map(KeyPattern::rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let rules = self.channels.iter().map(|pattern| [b"&", &**pattern].concat());
        rules.collect::<Vec<_>>().join(&b' ')
    }

    /// Rules that make the same selector.
    pub(super) fn rules(&self) -> Vec<u8> {
        let mut rules = self.keys_text();
        if !rules.is_empty() {
            rules.push(b' ');
        }
        if !self.all_channels {
            rules.extend_from_slice(b"resetchannels ");
        }
        rules.extend_from_slice(&self.channels_text());
        if rules.last().is_some_and(|&byte| byte != b' ') {
            rules.push(b' ');
        }
        rules.extend_from_slice(&self.commands_text());
        rules
    }
}

/// Whether one of the patterns permits a channel. A pattern of `PSUBSCRIBE` must be one of them.
pub(super) fn may_use_channel(patterns: &[Box<[u8]>], channel: &[u8], is_pattern: bool) -> bool {
    patterns.iter().any(|pattern| match is_pattern {
        true => **pattern == *channel,
        false => glob::matches(pattern, channel),
    })
}
