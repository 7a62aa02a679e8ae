//! Parses the forms of commands in `grammar.txt` and draws commands from them.

use std::collections::BTreeMap;

use super::kinds::{Draw, ValueKind};
use crate::random::Random;

const TEXT: &str = include_str!("grammar.txt");
/// The weight of forms that are marked `often`.
const OFTEN: usize = 5;
/// The largest number of repetitions.
const REPEAT_MAX: u64 = 4;

/// One form of a command.
#[derive(Clone, Debug)]
pub struct Form {
    /// Its line in the grammar.
    pub line: &'static str,
    shape: Shape,
}

/// All forms, and the commands without one.
pub struct Grammar {
    forms: Vec<Form>,
    left_out: BTreeMap<&'static str, &'static str>,
    /// Indices of the forms, repeated by their weight.
    weighted: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    /// A fixed word.
    Literal(String),
    /// A value.
    Value(ValueKind),
    /// Parts in this order.
    Sequence(Vec<Shape>),
    /// One of several parts.
    Either(Vec<Shape>),
    /// An optional part.
    Optional(Box<Shape>),
    /// A part that repeats at least once.
    Many(Box<Shape>),
}

impl Form {
    /// Whether the form begins with these words.
    pub fn begins_with(&self, words: &[&str]) -> bool {
        let mut own = self.line.split_whitespace();
        words.iter().all(|word| own.next() == Some(word))
    }

    /// The command's name.
    pub fn name(&self) -> &'static str {
        self.line.split_whitespace().next().unwrap_or_default()
    }

    /// Draws a command of this form.
    pub fn draw(&self, random: &mut Random, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
        let mut drawing = Drawing { words: Vec::new(), numkeys_at: None };
        drawing.add(&self.shape, random, draw);
        drawing.words
    }
}

impl Grammar {
    /// Parses `grammar.txt`; an error names the invalid line.
    pub fn new() -> Result<Grammar, String> {
        let mut grammar = Grammar { forms: vec![], left_out: BTreeMap::new(), weighted: vec![] };
        for line in TEXT.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(rest) = line.strip_prefix("no ") {
                let (name, reason) = rest.split_once(": ").ok_or("no reason")?;
                grammar.left_out.insert(name, reason);
                continue;
            }
            let (shape, often) = match line.split_once(" ~ ") {
                Some((shape, "often")) => (shape, true),
                Some((_, mark)) => return Err(format!("{line}: no such mark: {mark}")),
                None => (line, false),
            };
            let shape = Shape::parse(shape).map_err(|problem| format!("{line}: {problem}"))?;
            let times = if often { OFTEN } else { 1 };
            grammar.weighted.extend(std::iter::repeat_n(grammar.forms.len(), times));
            grammar.forms.push(Form { line, shape });
        }
        Ok(grammar)
    }

    /// Every form.
    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// The commands that are not drawn, as `CLIENT KILL`, and the reasons.
    pub fn left_out(&self) -> &BTreeMap<&'static str, &'static str> {
        &self.left_out
    }

    /// A random form.
    pub fn pick(&self, random: &mut Random) -> &Form {
        &self.forms[*random.pick(&self.weighted)]
    }
}

impl Shape {
    fn parse(text: &str) -> Result<Shape, String> {
        let spaced = ["[", "]", "(", ")", "|"]
            .iter()
            .fold(text.to_owned(), |text, sign| text.replace(sign, &format!(" {sign} ")));
        let spaced = spaced.replace("...", " ... ");
        let mut words = spaced.split_whitespace().collect::<Vec<_>>();
        words.reverse();
        let shape = Shape::either(&mut words)?;
        match words.last() {
            None => Ok(shape),
            Some(rest) => Err(format!("not understood: {rest}")),
        }
    }

    /// Parses a choice. The words are in reverse order: the next one is the last.
    fn either(words: &mut Vec<&str>) -> Result<Shape, String> {
        let mut choices = vec![Shape::sequence(words)?];
        while words.last() == Some(&"|") {
            words.pop();
            choices.push(Shape::sequence(words)?);
        }
        Ok(if choices.len() == 1 { choices.remove(0) } else { Shape::Either(choices) })
    }

    fn sequence(words: &mut Vec<&str>) -> Result<Shape, String> {
        let mut items: Vec<Shape> = Vec::new();
        while let Some(&word) = words.last() {
            let item = match word {
                "|" | "]" | ")" => break,
                "[" | "(" => {
                    words.pop();
                    let inner = Shape::either(words)?;
                    let close = if word == "[" { "]" } else { ")" };
                    if words.pop() != Some(close) {
                        return Err(format!("not closed: {word}"));
                    }
                    if word == "[" { Shape::Optional(Box::new(inner)) } else { inner }
                }
                "..." => {
                    words.pop();
                    let repeated = items.pop().ok_or("nothing to repeat")?;
                    Shape::Many(Box::new(repeated))
                }
                word => {
                    words.pop();
                    Shape::word(word)?
                }
            };
            items.push(item);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Shape::Sequence(items) })
    }

    fn word(word: &str) -> Result<Shape, String> {
        if let Some(kind) = ValueKind::named(word) {
            return Ok(Shape::Value(kind));
        }
        let plain = |text: &str| {
            let known = ["nothing", "abc", "maxmemory-policy"];
            known.contains(&text) || text.contains("-max-")
        };
        if word.starts_with(|first: char| first.is_ascii_lowercase()) && !plain(word) {
            return Err(format!("no kind of value: {word}"));
        }
        Ok(Shape::Literal(word.to_owned()))
    }
}

/// A command that is being drawn.
struct Drawing {
    words: Vec<Vec<u8>>,
    /// The place for the number of the keys that follow.
    numkeys_at: Option<usize>,
}

impl Drawing {
    fn add(&mut self, shape: &Shape, random: &mut Random, draw: &mut Draw<'_>) {
        match shape {
            Shape::Literal(word) if random.once_in(20) => {
                self.words.push(word.to_lowercase().into_bytes());
            }
            Shape::Literal(word) => self.words.push(word.clone().into_bytes()),
            Shape::Value(ValueKind::Numkeys) => {
                self.numkeys_at = Some(self.words.len());
                self.words.push(b"1".to_vec());
            }
            Shape::Value(kind) => draw.draw(*kind, random, &mut self.words),
            Shape::Sequence(shapes) => shapes.iter().for_each(|it| self.add(it, random, draw)),
            Shape::Either(shapes) => {
                let chosen = random.pick(shapes);
                self.add(chosen, random, draw);
            }
            Shape::Optional(shape) => {
                if random.once_in(3) {
                    self.add(shape, random, draw);
                }
            }
            Shape::Many(shape) => {
                // Mostly once or twice.
                let most = 1 + random.below(REPEAT_MAX);
                let times = 1 + random.below(most);
                for _ in 0..times {
                    self.add(shape, random, draw);
                }
                if let Some(at) = self.numkeys_at.take() {
                    let right = !random.once_in(30);
                    let count = if right { times } else { random.below(4) };
                    self.words[at] = count.to_string().into_bytes();
                }
            }
        }
    }
}
