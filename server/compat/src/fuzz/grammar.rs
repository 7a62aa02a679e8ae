//! The forms of commands, as `COMMAND DOCS` of a server describes them, and how commands are drawn
//! from them.

use std::collections::BTreeSet;

use super::kinds::ValueKind;
use super::rules::{LEFT_OUT_OPTIONS, OFTEN, RULES, UNDOCUMENTED, USUAL, With, left_out};
use crate::random::Random;
use crate::wire::frame::Frame;

/// The weight of commands that are drawn often.
const OFTEN_WEIGHT: usize = 5;
/// The largest number of repetitions.
const REPEAT_MAX: u64 = 4;
/// Number of times in which an optional part is drawn once; a usual one is left out as rarely.
const OPTIONAL_ONE_IN: u64 = 3;
const USUAL_LEFT_OUT_ONE_IN: u64 = 12;
/// Number of times in which a number of keys, or of ids for streams, is wrong once.
const MISCOUNTED_ONE_IN: u64 = 30;

/// The form of one command.
#[derive(Clone, Debug)]
pub struct Form {
    /// The command's name, and that of the subcommand.
    words: Vec<String>,
    /// The kind of its keys, unless a rule gives another.
    key: ValueKind,
    shape: Shape,
}

/// All forms.
pub struct Grammar {
    forms: Vec<Form>,
    /// Indices of the forms, repeated by their weight.
    weighted: Vec<usize>,
    /// The option words of all commands, also of those that are not drawn.
    options: Vec<String>,
}

/// Draws the values of arguments.
pub trait Values {
    /// Draws a value; for a command, several.
    fn draw(&mut self, kind: ValueKind, random: &mut Random, words: &mut Vec<Vec<u8>>);
}

/// An argument with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The word in front of it.
    pub token: Option<String>,
}

#[derive(Clone, Debug)]
enum Shape {
    /// A fixed word.
    Literal(String),
    /// A value.
    Value(Argument),
    /// Parts in this order.
    Sequence(Vec<Shape>),
    /// One of several parts.
    Either(Vec<Shape>),
    /// An optional part, and whether it is mostly drawn.
    Optional(Box<Shape>, bool),
    /// A part that repeats at least once.
    Many(Box<Shape>),
}

/// A word of a command before its value is drawn.
enum Part<'a> {
    Literal(&'a str),
    Value(&'a Argument),
}

impl Form {
    /// Whether the form begins with these words.
    pub fn begins_with(&self, words: &[&str]) -> bool {
        words.len() <= self.words.len() && self.words.iter().zip(words).all(|(own, it)| own == it)
    }

    /// The name of the command.
    pub fn name(&self) -> &str {
        &self.words[0]
    }

    /// The names of the command and the subcommand.
    pub fn full_name(&self) -> String {
        self.words.join(" ")
    }

    /// Its arguments with values.
    pub fn arguments(&self) -> Vec<&Argument> {
        let mut arguments = Vec::new();
        self.shape.collect(&mut arguments);
        arguments
    }

    /// Draws a command of this form.
    pub fn draw(&self, random: &mut Random, values: &mut dyn Values) -> Vec<Vec<u8>> {
        let mut parts: Vec<Part<'_>> = self.words.iter().map(|word| Part::Literal(word)).collect();
        self.shape.arrange(random, None, &mut parts);
        let mut words = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            match part {
                Part::Literal(word) if random.once_in(20) => {
                    words.push(word.to_lowercase().into_bytes());
                }
                Part::Literal(word) => words.push(word.as_bytes().to_vec()),
                Part::Value(argument) => match self.kind(argument, &parts, &words, random) {
                    ValueKind::Numkeys => words.push(numkeys(&parts[at + 1..], random)),
                    kind => values.draw(kind, random, &mut words),
                },
            }
        }
        words
    }

    /// The kind of an argument's value, by the first matching rule or by its type.
    fn kind(
        &self,
        argument: &Argument,
        parts: &[Part<'_>],
        words: &[Vec<u8>],
        random: &mut Random,
    ) -> ValueKind {
        let name = self.full_name();
        let applies = |with: With| match with {
            With::Anything => true,
            With::Token(token) => argument.token.as_deref() == Some(token),
            With::Option(option) => {
                parts.iter().any(|part| matches!(part, Part::Literal(word) if *word == option))
            }
            With::Word(begin) => words.iter().any(|word| word.starts_with(begin.as_bytes())),
        };
        let rule = RULES.iter().find(|rule| {
            (rule.commands.is_empty() || rule.commands.contains(&&*name))
                && rule.arguments.contains(&&*argument.name)
                && applies(rule.with)
        });
        match (rule, &*argument.kind) {
            (Some(rule), _) => *random.pick(rule.kinds),
            (None, "key") => self.key,
            (None, "integer") => ValueKind::Integer,
            (None, "double") => ValueKind::Float,
            (None, "pattern") => ValueKind::Glob,
            (None, "unix-time") => ValueKind::UnixMilliseconds,
            (None, _) => ValueKind::Value,
        }
    }
}

/// The number of keys that follow.
fn numkeys(parts: &[Part<'_>], random: &mut Random) -> Vec<u8> {
    let is_key = |part: &&Part<'_>| matches!(part, Part::Value(it) if it.kind == "key");
    let keys = parts.iter().take_while(is_key).count() as u64;
    let count = if random.once_in(MISCOUNTED_ONE_IN) { random.below(4) } else { keys };
    count.to_string().into_bytes()
}

impl Grammar {
    /// The grammar of the commands in a reply of `COMMAND DOCS`, without those that `exists` denies
    /// and without options introduced after version `newest`.
    pub fn new(docs: &Frame, newest: (u32, u32), exists: impl Fn(&str) -> bool) -> Grammar {
        let mut grammar = Grammar { forms: vec![], weighted: vec![], options: vec![] };
        grammar.add_commands(docs, newest, &exists);
        grammar.forms.sort_by_key(Form::full_name);
        for (at, form) in grammar.forms.iter().enumerate() {
            let is_often = OFTEN.contains(&&*form.full_name());
            let weight = if is_often { OFTEN_WEIGHT } else { 1 };
            grammar.weighted.extend(std::iter::repeat_n(at, weight));
        }
        grammar.options.sort();
        grammar.options.dedup();
        grammar
    }

    fn add_commands(&mut self, docs: &Frame, newest: (u32, u32), exists: &dyn Fn(&str) -> bool) {
        for (name, command) in fields(docs) {
            if !exists(&name) {
                continue;
            }
            if let Some(subcommands) = field(command, "subcommands") {
                self.add_commands(subcommands, newest, exists);
                continue;
            }
            let words: Vec<String> = name.split('|').map(str::to_uppercase).collect();
            let group = text_of(command, "group").unwrap_or_default();
            let arguments = field(command, "arguments").map_or(&[][..], |it| &it.items);
            let context = Reader { name: words.join(" "), newest };
            context.collect_options(arguments, &mut self.options);
            if left_out(&words, &group).is_some() {
                continue;
            }
            let mut shapes = context.shapes(arguments);
            let undocumented = UNDOCUMENTED.iter().find(|(name, ..)| *name == context.name);
            if let Some(&(_, name)) = undocumented.filter(|_| shapes.is_empty()) {
                let kind = "string".to_owned();
                shapes.push(Shape::Value(Argument { name: name.to_owned(), kind, token: None }));
            }
            let shape = Shape::Sequence(shapes);
            self.forms.push(Form { words, key: ValueKind::key_of_group(&group), shape });
        }
    }

    /// Every form.
    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// The option words of all commands.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// A random form.
    pub fn pick(&self, random: &mut Random) -> &Form {
        &self.forms[*random.pick(&self.weighted)]
    }
}

/// The names of all commands and subcommands in a reply of `COMMAND DOCS`, as `client|id`.
pub fn names(docs: &Frame) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, command) in fields(docs) {
        all.extend(field(command, "subcommands").into_iter().flat_map(names));
        all.insert(name);
    }
    all
}

/// Reads the arguments of one command.
struct Reader {
    name: String,
    newest: (u32, u32),
}

impl Reader {
    fn shapes(&self, arguments: &[Frame]) -> Vec<Shape> {
        arguments.iter().filter_map(|argument| self.shape(argument)).collect()
    }

    /// The shape of an argument, unless it is too new or not drawn.
    fn shape(&self, argument: &Frame) -> Option<Shape> {
        let name = text_of(argument, "name")?;
        let kind = text_of(argument, "type")?;
        let token = text_of(argument, "token");
        let is_it = |it: &str| it == name || token.as_deref() == Some(it);
        let is_left_out = LEFT_OUT_OPTIONS
            .iter()
            .any(|(command, option, _)| *command == self.name && is_it(option));
        let since = text_of(argument, "since").map_or((0, 0), |since| release(&since));
        if is_left_out || since > self.newest {
            return None;
        }
        let flags = field(argument, "flags").map_or(&[][..], |flags| &flags.items);
        let has = |flag: &str| flags.iter().any(|it| it.text == flag.as_bytes());
        let inner = || {
            let arguments = field(argument, "arguments").map_or(&[][..], |it| &it.items);
            self.shapes(arguments)
        };
        let value = match &*kind {
            "pure-token" => Shape::Sequence(Vec::new()),
            "oneof" => Shape::Either(inner()),
            "block" => Shape::Sequence(inner()),
            _ => {
                let token = token.clone();
                Shape::Value(Argument { name: name.clone(), kind, token })
            }
        };
        if matches!(&value, Shape::Either(choices) if choices.is_empty()) {
            return None;
        }
        let with_token = |shape: Shape| match token.clone() {
            Some(token) => Shape::Sequence(vec![Shape::Literal(token), shape]),
            None => shape,
        };
        let shape = match (has("multiple"), has("multiple_token")) {
            (true, true) => Shape::Many(Box::new(with_token(value))),
            (true, false) => with_token(Shape::Many(Box::new(value))),
            _ => with_token(value),
        };
        let is_usual = USUAL.iter().any(|(command, it)| *command == self.name && is_it(it));
        Some(if has("optional") { Shape::Optional(Box::new(shape), is_usual) } else { shape })
    }

    fn collect_options(&self, arguments: &[Frame], options: &mut Vec<String>) {
        for argument in arguments {
            options.extend(text_of(argument, "token"));
            if let Some(inner) = field(argument, "arguments") {
                self.collect_options(&inner.items, options);
            }
        }
    }
}

impl Shape {
    fn collect<'a>(&'a self, to: &mut Vec<&'a Argument>) {
        match self {
            Shape::Literal(_) => {}
            Shape::Value(argument) => to.push(argument),
            Shape::Sequence(shapes) | Shape::Either(shapes) => {
                shapes.iter().for_each(|shape| shape.collect(to));
            }
            Shape::Optional(shape, _) | Shape::Many(shape) => shape.collect(to),
        }
    }

    /// Chooses the parts of a command. Inside a block whose parts repeat equally often, `repeats`
    /// is their number.
    fn arrange<'a>(&'a self, random: &mut Random, repeats: Option<u64>, to: &mut Vec<Part<'a>>) {
        match self {
            Shape::Literal(word) => to.push(Part::Literal(word)),
            Shape::Value(argument) => to.push(Part::Value(argument)),
            Shape::Sequence(shapes) => {
                // Lists that often have the same length, as the keys and ids of XREAD.
                let many = shapes.iter().filter(|shape| matches!(shape, Shape::Many(_))).count();
                let equal = many > 1 && !random.once_in(MISCOUNTED_ONE_IN);
                let repeats = equal.then(|| repetitions(random));
                for shape in shapes {
                    shape.arrange(random, repeats, to);
                }
            }
            Shape::Either(shapes) => random.pick(shapes).arrange(random, None, to),
            Shape::Optional(shape, is_usual) => {
                let is_drawn = match is_usual {
                    true => !random.once_in(USUAL_LEFT_OUT_ONE_IN),
                    false => random.once_in(OPTIONAL_ONE_IN),
                };
                if is_drawn {
                    shape.arrange(random, None, to);
                }
            }
            Shape::Many(shape) => {
                for _ in 0..repeats.unwrap_or_else(|| repetitions(random)) {
                    shape.arrange(random, None, to);
                }
            }
        }
    }
}

/// Mostly once or twice.
fn repetitions(random: &mut Random) -> u64 {
    let most = 1 + random.below(REPEAT_MAX);
    1 + random.below(most)
}

/// The fields of a map, in RESP2 or RESP3.
fn fields(map: &Frame) -> impl Iterator<Item = (String, &Frame)> {
    let pairs = map.items.chunks_exact(2);
    pairs.map(|pair| (String::from_utf8_lossy(&pair[0].text).into_owned(), &pair[1]))
}

fn field<'a>(map: &'a Frame, name: &str) -> Option<&'a Frame> {
    let mut pairs = map.items.chunks_exact(2);
    pairs.find(|pair| pair[0].text == name.as_bytes()).map(|pair| &pair[1])
}

fn text_of(map: &Frame, name: &str) -> Option<String> {
    field(map, name).map(|text| String::from_utf8_lossy(&text.text).into_owned())
}

/// The first two numbers of a version.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
impl Grammar {
    /// A few commands, for tests without a server.
    pub(super) fn sample() -> Grammar {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let list = |items: &[String]| format!("*{}\r\n{}", items.len(), items.concat());
        let argument = |name: &str, kind: &str, flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| format!("+{flag}\r\n")).collect();
            let pairs = [bulk("name"), bulk(name), bulk("type"), bulk(kind)];
            list(&[pairs.to_vec(), vec![bulk("flags"), list(&flags)]].concat())
        };
        let key = || argument("key", "key", &[]);
        let word = |token: &str| {
            let pairs = [["name", token], ["type", "pure-token"], ["token", token]];
            list(&pairs.concat().into_iter().map(bulk).collect::<Vec<_>>())
        };
        let command = |name: &str, group: &str, arguments: &[String]| {
            let arguments = [bulk("arguments"), list(arguments)];
            let group = [bulk("group"), bulk(group)];
            [bulk(name), list(&[group, arguments].concat())]
        };
        let commands = [
            command("get", "string", &[key()]),
            command("set", "string", &[key(), argument("value", "string", &[]), word("KEEPTTL")]),
            command("del", "generic", &[argument("key", "key", &["multiple"])]),
            command("ping", "connection", &[argument("message", "string", &["optional"])]),
            command("subscribe", "pubsub", &[argument("channel", "string", &["multiple"])]),
        ];
        let docs = list(&commands.concat());
        let (docs, _) = Frame::first(docs.as_bytes()).expect("a reply").expect("a whole reply");
        Grammar::new(&docs, (7, 0), |_| true)
    }
}
