//! The grammar of a command's arguments, with the terms of `COMMAND DOCS`.
//!
//! A row lists its arguments: `arg::key("key")`, `arg::integer("seconds").token("EX")`,
//! `arg::word("NX").optional()`. The replies of `COMMAND DOCS` and the syntax in the documentation
//! are made from them.

use bitflags::bitflags;

use crate::settings::REDACTED;
use crate::settings::{self, CompatVersion, Vendor};

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentType {
    /// Any string.
    String,
    /// An integer.
    Integer,
    /// A decimal number.
    Double,
    /// The name of a key.
    Key,
    /// A pattern.
    Pattern,
    /// A number of seconds or milliseconds since 1970.
    UnixTime,
    /// A fixed word.
    PureToken,
    /// One of several arguments.
    Oneof,
    /// Several arguments in this order.
    Block,
}

impl ArgumentType {
    /// The name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            ArgumentType::String => "string",
            ArgumentType::Integer => "integer",
            ArgumentType::Double => "double",
            ArgumentType::Key => "key",
            ArgumentType::Pattern => "pattern",
            ArgumentType::UnixTime => "unix-time",
            ArgumentType::PureToken => "pure-token",
            ArgumentType::Oneof => "oneof",
            ArgumentType::Block => "block",
        }
    }
}

bitflags! {
    /// The flags of an argument, with the names and in the order of `COMMAND DOCS`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ArgumentFlags: u8 {
        /// May be left out.
        const OPTIONAL = 1;
        /// May be repeated.
        const MULTIPLE = 1 << 1;
        /// A token before each repetition.
        const MULTIPLE_TOKEN = 1 << 2;
    }
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name; empty for that of its token in lower case.
    name: &'static str,
    /// Its type.
    pub kind: ArgumentType,
    /// For a key, or a pattern of keys: the place of its specification in the row.
    pub key_spec: Option<usize>,
    /// The word in front of it.
    pub token: Option<&'static str>,
    /// The version that introduced it, if it is newer than the command.
    pub since: Option<&'static str>,
    /// The server of that version.
    pub maker: Vendor,
    /// The version since which another form should be used.
    pub deprecated_since: Option<&'static str>,
    /// See [`ArgumentFlags`].
    pub flags: ArgumentFlags,
    /// Whether it may contain a password. Not shown.
    pub is_secret: bool,
    /// Whether it is the value of the directive before it, which tells whether it is secret.
    pub is_directive_value: bool,
    /// The arguments of a block or a choice.
    pub arguments: &'static [Argument],
}

const fn new(name: &'static str, kind: ArgumentType) -> Argument {
    Argument {
        name,
        kind,
        key_spec: None,
        token: None,
        since: None,
        maker: Vendor::Both,
        deprecated_since: None,
        flags: ArgumentFlags::empty(),
        is_secret: false,
        is_directive_value: false,
        arguments: &[],
    }
}

/// A key, of the row's first key specification.
pub const fn key(name: &'static str) -> Argument {
    Argument { key_spec: Some(0), ..new(name, ArgumentType::Key) }
}

/// Any string.
pub const fn string(name: &'static str) -> Argument {
    new(name, ArgumentType::String)
}

/// An integer.
pub const fn integer(name: &'static str) -> Argument {
    new(name, ArgumentType::Integer)
}

/// A decimal number.
pub const fn double(name: &'static str) -> Argument {
    new(name, ArgumentType::Double)
}

/// A pattern.
pub const fn pattern(name: &'static str) -> Argument {
    new(name, ArgumentType::Pattern)
}

/// A number of seconds or milliseconds since 1970.
pub const fn unix_time(name: &'static str) -> Argument {
    new(name, ArgumentType::UnixTime)
}

/// A fixed word.
pub const fn word(token: &'static str) -> Argument {
    Argument { token: Some(token), ..new("", ArgumentType::PureToken) }
}

/// One of several arguments.
pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Argument {
    Argument { arguments, ..new(name, ArgumentType::Oneof) }
}

/// Several arguments in this order.
pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Argument {
    Argument { arguments, ..new(name, ArgumentType::Block) }
}

impl Argument {
    /// The same with a word in front of it.
    pub const fn token(self, token: &'static str) -> Argument {
        Argument { token: Some(token), ..self }
    }

    /// The same with a name that is not its token's.
    pub const fn named(self, name: &'static str) -> Argument {
        Argument { name, ..self }
    }

    /// The same, of another key specification of the row.
    pub const fn spec(self, key_spec: usize) -> Argument {
        Argument { key_spec: Some(key_spec), ..self }
    }

    /// The same, but it may be left out.
    pub const fn optional(self) -> Argument {
        Argument { flags: self.flags.union(ArgumentFlags::OPTIONAL), ..self }
    }

    /// The same, but it may be repeated.
    pub const fn multiple(self) -> Argument {
        Argument { flags: self.flags.union(ArgumentFlags::MULTIPLE), ..self }
    }

    /// The same, but it may be repeated, each time with its token.
    pub const fn multiple_token(self) -> Argument {
        let flags = ArgumentFlags::MULTIPLE.union(ArgumentFlags::MULTIPLE_TOKEN);
        Argument { flags: self.flags.union(flags), ..self }
    }

    /// The same, introduced in this version.
    pub const fn since(self, version: &'static str) -> Argument {
        Argument { since: Some(version), ..self }
    }

    /// The same, in the servers of this vendor only.
    pub const fn of(self, maker: Vendor) -> Argument {
        Argument { maker, ..self }
    }

    /// The same, deprecated since this version.
    pub const fn deprecated_since(self, version: &'static str) -> Argument {
        Argument { deprecated_since: Some(version), ..self }
    }

    /// The same, but it may contain a password.
    pub const fn secret(self) -> Argument {
        Argument { is_secret: true, ..self }
    }

    /// The same, but it is the value of the directive that the argument before it names.
    pub const fn directive_value(self) -> Argument {
        Argument { is_directive_value: true, ..self }
    }

    /// Its name in the row; empty for that of its token.
    pub(crate) fn plain_name(&self) -> &'static str {
        self.name
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self.token {
            Some(token) if self.name.is_empty() => token.to_ascii_lowercase(),
            _ => self.name.to_owned(),
        }
    }

    /// Whether a version has it.
    pub fn exists_in(&self, version: CompatVersion) -> bool {
        self.since.is_none_or(|since| version.has(self.maker, since))
    }

    /// Whether it, or an argument in it, begins with this word.
    pub fn has_token(&self, word: &str) -> bool {
        self.token.is_some_and(|token| token.eq_ignore_ascii_case(word))
            || self.arguments.iter().any(|argument| argument.has_token(word))
    }

    /// Appends it to a syntax.
    fn write(&self, version: CompatVersion, to: &mut String) {
        let is_optional = self.flags.contains(ArgumentFlags::OPTIONAL);
        let mut text = String::new();
        match self.kind {
            ArgumentType::PureToken => {}
            ArgumentType::Block => text = syntax(self.arguments, version),
            ArgumentType::Oneof => {
                let choices = self.arguments.iter().map(|choice| syntax(&[*choice], version));
                let choices: Vec<String> = choices.filter(|choice| !choice.is_empty()).collect();
                text = choices.join(" | ");
                let repeats = self.flags.contains(ArgumentFlags::MULTIPLE);
                if !is_optional || self.token.is_some() || repeats {
                    text = format!("<{text}>");
                }
            }
            _ => text = self.name(),
        }
        let repeats_token = self.flags.contains(ArgumentFlags::MULTIPLE_TOKEN);
        let token = self.token.filter(|token| !token.is_empty());
        let with_token = |text: &str| match token {
            Some(token) if text.is_empty() => token.to_owned(),
            Some(token) => format!("{token} {text}"),
            None => text.to_owned(),
        };
        if repeats_token {
            text = with_token(&text);
        }
        if self.flags.contains(ArgumentFlags::MULTIPLE) {
            text = format!("{text} [{text} ...]");
        }
        if !repeats_token {
            text = with_token(&text);
        }
        if !to.is_empty() {
            to.push(' ');
        }
        to.push_str(&if is_optional { format!("[{text}]") } else { text });
    }
}

/// The arguments that a version has, in the notation of Redis's documentation:
/// `key value [NX | XX]`.
pub fn syntax(arguments: &[Argument], version: CompatVersion) -> String {
    let mut text = String::new();
    for argument in arguments.iter().filter(|argument| argument.exists_in(version)) {
        argument.write(version, &mut text);
    }
    text
}

/// The number of values before the first one that may contain a password, if there is one.
fn values_before_secret(arguments: &[Argument]) -> Option<usize> {
    fn count(arguments: &[Argument], before: &mut usize) -> bool {
        arguments.iter().any(|argument| {
            argument.is_secret || {
                *before += usize::from(argument.arguments.is_empty());
                count(argument.arguments, before)
            }
        })
    }
    let mut before = 0;
    count(arguments, &mut before).then_some(before)
}

/// The words of a request that may be shown to others: those that may be passwords are replaced.
/// The first `name_words` are the command's name.
pub fn without_secrets<'a>(
    arguments: &[Argument],
    name_words: usize,
    argv: &[&'a [u8]],
) -> Vec<&'a [u8]> {
    fn secret_option(arguments: &[Argument]) -> Option<(&'static str, usize)> {
        arguments.iter().find_map(|argument| match argument.token {
            Some(token) if argument.is_secret => Some((token, argument.arguments.len().max(1))),
            _ => secret_option(argument.arguments),
        })
    }
    fn has_directives(arguments: &[Argument]) -> bool {
        arguments.iter().any(|it| it.is_directive_value || has_directives(it.arguments))
    }
    let mut shown = argv.to_vec();
    if has_directives(arguments) {
        for at in (name_words + 1..shown.len()).step_by(2) {
            if is_secret_directive(shown[at - 1]) {
                shown[at] = REDACTED;
            }
        }
        return shown;
    }
    let secrets = match secret_option(arguments) {
        Some((token, values)) => {
            let at = argv.iter().position(|word| word.eq_ignore_ascii_case(token.as_bytes()));
            at.map(|at| at + 1..at + 1 + values)
        }
        None => values_before_secret(arguments).map(|before| name_words + before..argv.len()),
    };
    for at in secrets.into_iter().flatten() {
        if let Some(word) = shown.get_mut(at) {
            *word = REDACTED;
        }
    }
    shown
}

fn is_secret_directive(name: &[u8]) -> bool {
    settings::find(&String::from_utf8_lossy(name))
        .is_some_and(|(_, directive)| directive.is_sensitive)
}

#[cfg(test)]
mod tests {
    use crate::command::argument::{
        self as arg, Argument, syntax, values_before_secret, without_secrets,
    };
    use crate::settings::CompatVersion;

    const CONDITION: Argument = arg::one_of("condition", &[arg::word("NX"), arg::word("XX")]);
    const PAIR: Argument = arg::block("data", &[arg::string("field"), arg::string("value")]);

    #[test]
    fn syntax_is_that_of_redis_documentation() {
        for (argument, expected) in [
            (CONDITION, "<NX | XX>"),
            (CONDITION.optional(), "[NX | XX]"),
            (CONDITION.optional().token("IF"), "[IF <NX | XX>]"),
            (CONDITION.optional().multiple(), "[<NX | XX> [<NX | XX> ...]]"),
            (PAIR.multiple(), "field value [field value ...]"),
            (PAIR.optional().multiple(), "[field value [field value ...]]"),
            (arg::key("key").multiple().token("KEYS"), "KEYS key [key ...]"),
            (
                arg::pattern("pattern").token("GET").multiple_token(),
                "GET pattern [GET pattern ...]",
            ),
        ] {
            assert_eq!(syntax(&[argument], CompatVersion::default()), expected);
        }
        let later = arg::word("NEW").since("8.4.0");
        let arguments = [arg::key("key"), later, PAIR];
        assert_eq!(syntax(&arguments, CompatVersion::default()), "key field value");
        assert_eq!(syntax(&arguments, CompatVersion::Redis84), "key NEW field value");
    }

    #[test]
    fn values_before_a_secret_are_counted() {
        let secret = arg::string("password").secret();
        assert_eq!(values_before_secret(&[secret]), Some(0));
        assert_eq!(values_before_secret(&[arg::integer("n"), secret]), Some(1));
        assert_eq!(values_before_secret(&[arg::integer("n")]), None);
    }

    #[test]
    fn words_that_may_be_passwords_are_replaced() {
        const USER: &[Argument] = &[arg::string("username"), arg::string("password")];
        let option = arg::block("auth", USER).token("AUTH").optional().secret();
        let secret = arg::string("password").secret();
        const PAIR: &[Argument] =
            &[arg::string("parameter"), arg::string("value").directive_value()];
        let directives = arg::block("parameter_value", PAIR).multiple();
        for (arguments, request, shown) in [
            (&[secret][..], "AUTH a b", "AUTH (redacted) (redacted)"),
            (
                &[arg::integer("protover"), option],
                "HELLO 3 auth u p X y",
                "HELLO 3 auth (redacted) (redacted) X y",
            ),
            (&[arg::integer("protover"), option], "HELLO 3 auth u", "HELLO 3 auth (redacted)"),
            (&[arg::integer("protover"), option], "HELLO 3", "HELLO 3"),
            (&[arg::key("key")], "GET AUTH", "GET AUTH"),
            (
                &[directives],
                "SET RequirePass p timeout 3 masterauth",
                "SET RequirePass (redacted) timeout 3 masterauth",
            ),
            (&[directives], "SET masterauth a b c", "SET masterauth (redacted) b c"),
        ] {
            let argv: Vec<&[u8]> = request.split(' ').map(str::as_bytes).collect();
            let found = without_secrets(arguments, 1, &argv);
            assert_eq!(String::from_utf8_lossy(&found.join(&b' ')), shown);
        }
    }
}
