//! `LOCKWHEEL JOURNAL`, `CHECK` and `LINT`: the journal as JSON, or as text, so that it
//! has the same form in every client language.

use lockwheel_resp::Reply;
use serde::Serialize;

use crate::command::syntax_error::unknown_of_few;
use crate::command::{is, unsigned};
use crate::commands::json;
use crate::error::Error;
use crate::run::context::Context;

use crate::instruments::journal::Selection;
use crate::instruments::journal::checks::{Check, CheckResult, Scope};
use crate::instruments::journal::entry::story;

/// The result of a check, with its text form.
#[derive(Serialize)]
struct CheckWithStory {
    text: String,
    #[serde(flatten)]
    result: CheckResult,
}

/// `LOCKWHEEL JOURNAL [KEY <pattern>] [CLIENT <id or name>] [SINCE <seq>] [COUNT <n>] [TEXT]`,
/// `LOCKWHEEL JOURNAL CLEAR | HOLDERS | KNOWN | DECLARE <pattern> | IGNORE <pattern>`
pub(super) fn journal(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let time = context.time;
    if context.engine().journal().is_none() {
        return Err(NO_JOURNAL);
    }
    let done = match &argv[2..] {
        [word] if is(word, "clear") => context.clear_journal(),
        [word] if is(word, "holders") => return Ok(json(&context.engine().held_locks(time))),
        [word] if is(word, "known") => return Ok(json(&context.engine().known_locks(time))),
        [word, pattern] if is(word, "declare") => context.declare_locks(pattern),
        [word, pattern] if is(word, "ignore") => context.ignore_locks(pattern),
        _ => return select(context, argv),
    };
    done.map(|()| Reply::OK).ok_or(NO_JOURNAL)
}

/// The entries that a request selects.
fn select(context: &Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let journal = context.engine().journal().ok_or(NO_JOURNAL)?;
    let (words, is_text) = match &argv[2..] {
        [words @ .., last] if is(last, "text") => (words, true),
        words => (words, false),
    };
    let selection = selection(context, argv, words)?;
    let entries = journal.select(selection);
    Ok(if is_text { Reply::bulk(story(&entries, None)) } else { json(&entries) })
}

/// `LOCKWHEEL CHECK [<name>] [KEY <pattern>] [CLIENT <id or name>] [SINCE <seq>] [STORY]`
pub(super) fn check(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let is_option = |word: &[u8]| ["key", "client", "since", "story"].iter().any(|it| is(word, it));
    let (checks, words) = match &argv[2..] {
        [name, words @ ..] if !is_option(name) => {
            let known = Check::ALL.into_iter().find(|check| is(name, check.name()));
            let names = Check::ALL.map(Check::name);
            (vec![known.ok_or_else(|| unknown_of_few("check", name, &names))?], words)
        }
        words => (Check::GENERAL.to_vec(), words),
    };
    let (words, with_story) = match words {
        [words @ .., last] if is(last, "story") => (words, true),
        words => (words, false),
    };
    let scope = scope(context, argv, words)?;
    if with_story && checks.len() > 1 {
        return Err(context.syntax_error(argv));
    }
    for check in checks {
        let result = context.engine().check_locks(check, scope, context.time).ok_or(NO_JOURNAL)?;
        if with_story {
            return Ok(json(&CheckWithStory { text: result.to_string(), result }));
        }
        if !result.holds {
            let line = format!("CHECK {}: {}", check.name(), result.sentence);
            return Err(Error::text(line.replace(['\r', '\n'], " ")));
        }
    }
    Ok(Reply::OK)
}

/// `LOCKWHEEL LINT [KEY <pattern>] [CLIENT <id or name>] [SINCE <seq>]`
pub(super) fn lint(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let scope = scope(context, argv, &argv[2..])?;
    Ok(json(&context.engine().lint_locks(scope, context.time).ok_or(NO_JOURNAL)?))
}

/// The scope that these words of a request name.
fn scope<'a>(
    context: &Context<'_>,
    argv: &[&[u8]],
    words: &[&'a [u8]],
) -> Result<Scope<'a>, Error> {
    match selection(context, argv, words)? {
        Selection { scope, count: None } => Ok(scope),
        _ => Err(context.syntax_error(argv)),
    }
}

/// The selection that these words of a request name.
fn selection<'a>(
    context: &Context<'_>,
    argv: &[&[u8]],
    mut words: &[&'a [u8]],
) -> Result<Selection<'a>, Error> {
    let mut selection = Selection::default();
    while let [word, value, rest @ ..] = words {
        words = rest;
        match () {
            () if is(word, "key") => selection.scope.key = Some(value),
            () if is(word, "client") => selection.scope.client = Some(value),
            () if is(word, "since") => selection.scope.since = unsigned(value)?,
            () if is(word, "count") => {
                selection.count = Some(usize::try_from(unsigned(value)?).unwrap_or(usize::MAX));
            }
            () => return Err(context.syntax_error(argv)),
        }
    }
    if words.is_empty() { Ok(selection) } else { Err(context.syntax_error(argv)) }
}

/// Only servers with a journal permit these commands to remote clients, but an embedding program
/// may use them with any server.
const NO_JOURNAL: Error =
    Error::line("ERR no journal is kept: the server was started without enable-test-commands");
