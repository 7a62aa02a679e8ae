//! `LOCKWHEEL JOURNAL`, `LOCKS`, `CHECK` and `LINT`: the journal as JSON, or as text, so that it
//! has the same form in every client language.

use lockwheel_resp::Reply;
use serde::Serialize;

use crate::commands::json;
use crate::context::{Context, integer, is};
use crate::error::Error;
use crate::syntax_error::unknown_of_few;

use super::Selection;
use super::checks::{Check, CheckResult};
use super::entry::story;

/// The result of a check, with its text form.
#[derive(Serialize)]
struct CheckWithStory {
    text: String,
    #[serde(flatten)]
    result: CheckResult,
}

/// `LOCKWHEEL JOURNAL [SINCE <seq>] [KEY <pattern>] [COUNT <n>] [TEXT]`, `LOCKWHEEL JOURNAL CLEAR`
pub fn journal(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if let [word] = &argv[2..]
        && is(word, "clear")
    {
        return context.engine.clear_journal().map(|()| Reply::OK).ok_or(NO_JOURNAL);
    }
    let journal = context.engine.journal().ok_or(NO_JOURNAL)?;
    let mut selection = Selection::default();
    let (mut words, is_text) = match &argv[2..] {
        [words @ .., last] if is(last, "text") => (words, true),
        words => (words, false),
    };
    while let [word, value, rest @ ..] = words {
        words = rest;
        match () {
            () if is(word, "since") => selection.since = count(value)?,
            () if is(word, "key") => selection.key = Some(value),
            () if is(word, "count") => {
                selection.count = Some(usize::try_from(count(value)?).unwrap_or(usize::MAX));
            }
            () => return Err(context.syntax_error(argv)),
        }
    }
    if !words.is_empty() {
        return Err(context.syntax_error(argv));
    }
    let entries = journal.select(selection);
    Ok(if is_text { Reply::bulk(story(&entries)) } else { json(&entries) })
}

/// `LOCKWHEEL LOCKS`
pub fn locks(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    if context.engine.journal().is_none() {
        return Err(NO_JOURNAL);
    }
    Ok(json(&context.engine.held_locks(context.time)))
}

/// `LOCKWHEEL CHECK [<name> [STORY]]`
pub fn check(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let checks = match argv.get(2) {
        None => Check::ALL.to_vec(),
        Some(name) => {
            let known = Check::ALL.into_iter().find(|check| is(name, check.name()));
            let names = Check::ALL.map(Check::name);
            vec![known.ok_or_else(|| unknown_of_few("check", name, &names))?]
        }
    };
    let with_story = match &argv[2..] {
        [] | [_] => false,
        [_, word] if is(word, "story") => true,
        _ => return Err(context.syntax_error(argv)),
    };
    for check in checks {
        let result = context.engine.check_locks(check, context.time).ok_or(NO_JOURNAL)?;
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

/// `LOCKWHEEL LINT`
pub fn lint(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(json(&context.engine.lint_locks(context.time).ok_or(NO_JOURNAL)?))
}

fn count(value: &[u8]) -> Result<u64, Error> {
    u64::try_from(integer(value)?).map_err(|_| Error::NotAnInteger)
}

/// Only servers with a journal permit these commands to remote clients, but an embedding program
/// may use them with any server.
const NO_JOURNAL: Error =
    Error::line("ERR no journal is kept: the server was started without enable-test-commands");
