//! `LOCKWHEEL LOCKS` and `LOCKWHEEL RELEASE`: the lock view as JSON, so that it has the same form
//! in every client language.

use lockwheel_resp::Reply;

use super::kinds;
use super::view::LockView;
use crate::commands::json;
use crate::context::{Context, integer, is};
use crate::error::Error;
use crate::limits::VIEWED_KEYS_DEFAULT;
use crate::store::lock_notes::Way;

/// What a request selects.
#[derive(Default)]
struct Selection<'a> {
    pattern: Option<&'a [u8]>,
    cursor: Option<u64>,
    count: Option<usize>,
    key: Option<&'a [u8]>,
    database: Option<usize>,
    since: Option<u64>,
}

/// `LOCKWHEEL LOCKS [MATCH <pattern>] [CURSOR <cursor>] [COUNT <n>]`,
/// `LOCKWHEEL LOCKS KEY <key> [DATABASE <n>]`, `LOCKWHEEL LOCKS SINCE <sequence>`
pub fn locks(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let selection = selection(context, argv, &argv[2..])?;
    let database = selection.database.unwrap_or(context.database);
    let view = LockView::new(context.engine, context.client, context.time).ok_or(NO_VIEW)?;
    Ok(match selection {
        Selection {
            key: Some(key), pattern: None, cursor: None, count: None, since: None, ..
        } => json(&view.lock(database, key)),
        Selection {
            since: Some(since),
            pattern: None,
            cursor: None,
            count: None,
            key: None,
            database: None,
        } => json(&view.changes(since)),
        Selection {
            pattern,
            cursor: None,
            count: None,
            key: None,
            database: None,
            since: None,
        } => json(&view.locks(0, usize::MAX, pattern)),
        Selection { pattern, cursor, count, key: None, database: None, since: None } => {
            let count = count.unwrap_or(VIEWED_KEYS_DEFAULT);
            json(&view.locks(cursor.unwrap_or(0), count, pattern))
        }
        _ => return Err(context.syntax_error(argv)),
    })
}

/// `LOCKWHEEL RELEASE <key> [DATABASE <n>]`
pub fn release(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[2];
    let database = match &argv[3..] {
        [] => context.database,
        [word, number] if is(word, "database") => existing_database(context, number)?,
        _ => return Err(context.syntax_error(argv)),
    };
    let view = LockView::new(context.engine, context.client, context.time).ok_or(NO_VIEW)?;
    if view.lock(database, key).lock.is_none() {
        return Ok(Reply::Integer(0));
    }
    context.engine.writer.set_way(Way::Forced);
    context.within(database, |context| context.remove_emptied(key));
    context.engine.writer.count_changes(1);
    for channel in kinds::channels(key) {
        context.engine.record_message(false, &channel, kinds::RELEASE_MESSAGE);
        context.engine.sessions.publish(&channel, kinds::RELEASE_MESSAGE);
    }
    Ok(Reply::Integer(1))
}

fn selection<'a>(
    context: &Context<'_>,
    argv: &[&[u8]],
    mut words: &[&'a [u8]],
) -> Result<Selection<'a>, Error> {
    let mut selection = Selection::default();
    while let [word, value, rest @ ..] = words {
        words = rest;
        match () {
            () if is(word, "match") => selection.pattern = Some(value),
            () if is(word, "cursor") => selection.cursor = Some(number(value)?),
            () if is(word, "count") => {
                selection.count =
                    Some(usize::try_from(number(value)?.max(1)).unwrap_or(usize::MAX));
            }
            () if is(word, "key") => selection.key = Some(value),
            () if is(word, "database") => {
                selection.database = Some(existing_database(context, value)?);
            }
            () if is(word, "since") => selection.since = Some(number(value)?),
            () => return Err(context.syntax_error(argv)),
        }
    }
    if words.is_empty() { Ok(selection) } else { Err(context.syntax_error(argv)) }
}

fn number(value: &[u8]) -> Result<u64, Error> {
    u64::try_from(integer(value)?).map_err(|_| Error::NotAnInteger)
}

fn existing_database(context: &Context<'_>, value: &[u8]) -> Result<usize, Error> {
    let number = usize::try_from(number(value)?).unwrap_or(usize::MAX);
    let exists = number < context.engine.writer.keyspace().count();
    exists.then_some(number).ok_or(Error::line("ERR DB index is out of range"))
}

const NO_VIEW: Error = Error::line("ERR there is no lock view: the directive lock-view is no");
