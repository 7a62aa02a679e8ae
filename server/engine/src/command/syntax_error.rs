//! Explains a syntax error by the grammar of the command: names the first word that does not fit,
//! and the words that are allowed in its place.

use std::fmt::Write;

use strsim::damerau_levenshtein;

use crate::command::argument::{Argument, ArgumentFlags, ArgumentType};
use crate::error::Error;

/// The characters of a word that an error shows at most.
const WORD_CHARACTERS_MAX: usize = 40;

/// The error for words that are not in the grammar; [`Error::Syntax`] if they are.
pub(crate) fn explain(arguments: &[Argument], words: &[&[u8]]) -> Error {
    let mut search = Search { words, furthest: 0, expected: Vec::new() };
    let end = search.sequence(arguments, "option", 0);
    match end {
        Some(end) if end == words.len() => return Error::Syntax,
        Some(end) => search.note(end, None),
        None => {}
    }
    search.error()
}

/// The error for a word that is none of `known`. `kind` says what it should be.
pub(crate) fn unknown(kind: &str, word: &[u8], known: &[&str]) -> Error {
    Error::text(format!("ERR {}", describe_unknown(kind, word, known)))
}

/// As [`unknown`], and lists the words that are known.
pub(crate) fn unknown_of_few(kind: &str, word: &[u8], known: &[&str]) -> Error {
    Error::text(format!("ERR {}", describe_unknown_of_few(kind, word, known)))
}

/// Says that a word is none of `known`, and which of them is nearest. `kind` says what it should
/// be.
pub fn describe_unknown(kind: &str, word: &[u8], known: &[&str]) -> String {
    let word = printable(word);
    let mut text = format!("unknown {kind} '{word}'");
    if let Some(nearest) = nearest(&word, known) {
        let _ = write!(text, "; did you mean {nearest}?");
    }
    text
}

/// As [`describe_unknown`], and lists the words that are known.
pub fn describe_unknown_of_few(kind: &str, word: &[u8], known: &[&str]) -> String {
    let text = describe_unknown(kind, word, known);
    let stop = if text.ends_with('?') { "" } else { "." };
    format!("{text}{stop} Known: {}", known.join(", "))
}

/// The word that is most likely meant, if one is similar.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let distance = |known: &&str| damerau_levenshtein(&word, &known.to_ascii_lowercase());
    let nearest = known.iter().min_by_key(|known| distance(known))?;
    (distance(nearest) <= word.chars().count().div_ceil(3)).then_some(*nearest)
}

/// A word as an error line can contain it.
fn printable(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let shown = text.chars().take(WORD_CHARACTERS_MAX);
    shown.map(|char| if char.is_control() { '?' } else { char }).collect()
}

/// Reads words by a grammar, and keeps what was expected at the furthest place.
struct Search<'a> {
    words: &'a [&'a [u8]],
    furthest: usize,
    expected: Vec<Expected>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A fixed word of this kind.
    Token(&'static str, &'static str),
    /// A value of this name.
    Value(&'static str),
}

impl Search<'_> {
    /// Records what was expected at the argument `at`; `None` if nothing was.
    fn note(&mut self, at: usize, expected: Option<Expected>) {
        if at > self.furthest {
            self.furthest = at;
            self.expected.clear();
        }
        if at == self.furthest {
            self.expected.extend(expected.filter(|it| !self.expected.contains(it)));
        }
    }

    /// Reads arguments from `at` on, options in any order; returns where they end.
    fn sequence(
        &mut self,
        arguments: &[Argument],
        kind: &'static str,
        mut at: usize,
    ) -> Option<usize> {
        let is_option = |argument: &&Argument| argument.flags.contains(ArgumentFlags::OPTIONAL);
        let mut rest = arguments;
        while let [first, others @ ..] = rest {
            let options = rest.iter().take_while(is_option).count();
            if options == 0 {
                at = self.repeated(first, kind, at)?;
                rest = others;
                continue;
            }
            let mut unused: Vec<&Argument> = rest[..options].iter().collect();
            while let Some((used, end)) = unused.iter().enumerate().find_map(|(index, option)| {
                let end = self.repeated(option, kind, at).filter(|&end| end > at)?;
                Some((index, end))
            }) {
                unused.remove(used);
                at = end;
            }
            rest = &rest[options..];
        }
        Some(at)
    }

    fn repeated(&mut self, argument: &Argument, kind: &'static str, at: usize) -> Option<usize> {
        let mut end = self.once(argument, kind, at)?;
        while argument.flags.contains(ArgumentFlags::MULTIPLE)
            && let Some(next) = self.once(argument, kind, end).filter(|&next| next > end)
        {
            end = next;
        }
        Some(end)
    }

    fn once(&mut self, argument: &Argument, kind: &'static str, at: usize) -> Option<usize> {
        let at = match argument.token {
            Some(token) => self.token(token, kind, at)?,
            None => at,
        };
        match argument.kind {
            ArgumentType::PureToken => Some(at),
            ArgumentType::Block => self.sequence(argument.arguments, kind, at),
            ArgumentType::Oneof => {
                let kind = argument.plain_name();
                let choice = |one| self.sequence(std::slice::from_ref(one), kind, at);
                argument.arguments.iter().find_map(choice)
            }
            _ if at < self.words.len() => Some(at + 1),
            _ => {
                self.note(at, Some(Expected::Value(argument.plain_name())));
                None
            }
        }
    }

    fn token(&mut self, token: &'static str, kind: &'static str, at: usize) -> Option<usize> {
        if self.words.get(at).is_some_and(|word| word.eq_ignore_ascii_case(token.as_bytes())) {
            return Some(at + 1);
        }
        self.note(at, Some(Expected::Token(token, kind)));
        None
    }

    fn error(self) -> Error {
        let tokens = self.expected.iter().filter_map(|expected| match expected {
            Expected::Token(token, _) => Some(*token),
            Expected::Value(_) => None,
        });
        let tokens: Vec<&str> = tokens.collect();
        match (self.words.get(self.furthest), self.expected.first()) {
            (Some(word), Some(Expected::Token(_, kind))) => unknown_of_few(kind, word, &tokens),
            (Some(word), _) => Error::text(format!("ERR unexpected word '{}'", printable(word))),
            (None, Some(Expected::Value(name))) => {
                let after = self.furthest.checked_sub(1).map(|at| printable(self.words[at]));
                let after = after.map(|word| format!(" after '{word}'")).unwrap_or_default();
                Error::text(format!("ERR {name} is missing{after}"))
            }
            (None, Some(Expected::Token(_, kind))) => {
                Error::text(format!("ERR {kind} is missing. Known: {}", tokens.join(", ")))
            }
            (None, None) => Error::Syntax,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::argument::{self as arg, Argument};

    const ACTION: Argument = arg::one_of(
        "action",
        &[arg::word("DROP"), arg::word("LOSE"), arg::string("span").token("DELAY")],
    );
    const CONDITION: Argument = arg::one_of(
        "condition",
        &[arg::pattern("key").token("KEY"), arg::integer("n").token("NTH")],
    );
    const OPERATION: Argument = arg::one_of(
        "operation",
        &[
            arg::block("add", &[ACTION, CONDITION.optional().multiple()]).token("ADD"),
            arg::word("LIST"),
            arg::block(
                "show",
                &[arg::integer("seq").token("SINCE").optional(), arg::word("TEXT").optional()],
            )
            .token("SHOW"),
        ],
    );

    #[test]
    fn error_names_the_first_word_that_does_not_fit_and_what_does() {
        for (words, error) in [
            ("", "operation is missing. Known: ADD, LIST, SHOW"),
            ("LOST", "unknown operation 'LOST'; did you mean LIST? Known: ADD, LIST, SHOW"),
            ("xyz", "unknown operation 'xyz'. Known: ADD, LIST, SHOW"),
            ("LIST all", "unexpected word 'all'"),
            ("ADD", "action is missing. Known: DROP, LOSE, DELAY"),
            ("ADD LOOSE", "unknown action 'LOOSE'; did you mean LOSE? Known: DROP, LOSE, DELAY"),
            ("add delay", "span is missing after 'delay'"),
            ("ADD DROP KEY", "key is missing after 'KEY'"),
            ("ADD DROP KYE k", "unknown condition 'KYE'; did you mean KEY? Known: KEY, NTH"),
            ("ADD DELAY 1s NTH 2 x", "unknown condition 'x'. Known: KEY, NTH"),
            ("SHOW TEXT SINC 5", "unknown operation 'SINC'; did you mean SINCE? Known: SINCE"),
            ("SHOW TEXT SINCE", "seq is missing after 'SINCE'"),
            ("SHOW TEXT SINCE 5", "syntax error"),
            ("a\rb", "unknown operation 'a?b'. Known: ADD, LIST, SHOW"),
        ] {
            let list: Vec<&[u8]> =
                words.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
            let explained = explain(&[OPERATION], &list).to_string();
            assert_eq!(explained, format!("ERR {error}"), "{words}");
        }
    }
}
