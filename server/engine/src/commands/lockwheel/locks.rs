//! `LOCKWHEEL LOCKS` and `LOCKWHEEL RELEASE`: the lock view as JSON, so that it has the same form
//! in every client language.

use lockwheel_resp::Reply;

use crate::command::{is, unsigned};
use crate::commands::json;
use crate::commands::keys::database_number;
use crate::error::Error;
use crate::limits::VIEWED_KEYS_DEFAULT;
use crate::locks::kinds;
use crate::locks::view::LockView;
use crate::run::context::Context;
use crate::store::lock_notes::MadeBy;

/// `LOCKWHEEL LOCKS [MATCH <pattern>] [CURSOR <cursor>] [COUNT <n>]`,
/// `LOCKWHEEL LOCKS KEY <key> [DATABASE <n>]`, `LOCKWHEEL LOCKS SINCE <sequence>`
pub(super) fn locks(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [word, key, place @ ..] if is(word, "key") => {
            let database = database(context, argv, place)?;
            Ok(json(&view(context, argv)?.lock(database, key)))
        }
        [word, sequence] if is(word, "since") => {
            let sequence = unsigned(sequence)?;
            let view = view(context, argv)?;
            let changes = view.changes(sequence);
            Ok(json(&changes.ok_or_else(|| has_no_events(&view.leader().unwrap_or_default()))?))
        }
        words => list(context, argv, words),
    }
}

/// `LOCKWHEEL LOCKS [MATCH <pattern>] [CURSOR <cursor>] [COUNT <n>]`
fn list(context: &Context<'_>, argv: &[&[u8]], mut words: &[&[u8]]) -> Result<Reply, Error> {
    let (mut pattern, mut cursor, mut count) = (None, None, None);
    while let [word, value, rest @ ..] = words {
        words = rest;
        match () {
            () if is(word, "match") => pattern = Some(*value),
            () if is(word, "cursor") => cursor = Some(unsigned(value)?),
            () if is(word, "count") => {
                count = Some(usize::try_from(unsigned(value)?.max(1)).unwrap_or(usize::MAX));
            }
            () => return Err(context.syntax_error(argv)),
        }
    }
    if !words.is_empty() {
        return Err(context.syntax_error(argv));
    }
    let count_default = if cursor.is_some() { VIEWED_KEYS_DEFAULT } else { usize::MAX };
    let count = count.unwrap_or(count_default);
    Ok(json(&view(context, argv)?.locks(cursor.unwrap_or(0), count, pattern)))
}

/// `LOCKWHEEL RELEASE <key> [DATABASE <n>]`
pub(super) fn release(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[2];
    let database = database(context, argv, &argv[3..])?;
    if view(context, argv)?.find(database, key).is_none() {
        return Ok(Reply::Integer(0));
    }
    context.set_made_by(MadeBy::Forced);
    context.within(database, |context| context.remove_and_notify(key));
    for channel in kinds::channels(key) {
        context.publish(&channel, kinds::RELEASE_MESSAGE);
    }
    Ok(Reply::Integer(1))
}

/// What the client may see by this command: the owners of native locks only if `LOCK.INFO` shows
/// them to it.
fn view<'c>(context: &'c Context<'_>, argv: &[&[u8]]) -> Result<LockView<'c>, Error> {
    let engine = context.engine();
    let readable = engine.readable_keys(context.client, argv);
    let with_owners = engine.readable_keys(context.client, &[b"lock.info"]);
    LockView::new(engine, readable, with_owners, context.time).ok_or(NO_VIEW)
}

/// The error for a request of events at a follower.
fn has_no_events(leader: &str) -> Error {
    let place = if leader.is_empty() { "the leader" } else { leader };
    Error::text(format!("ERR this is a follower, which has no events of locks: ask {place}"))
}

/// The database of `[DATABASE <n>]`: that of the client if there are no words.
fn database(context: &Context<'_>, argv: &[&[u8]], words: &[&[u8]]) -> Result<usize, Error> {
    match words {
        [] => Ok(context.database),
        [word, number] if is(word, "database") => database_number(context, number),
        _ => Err(context.syntax_error(argv)),
    }
}

const NO_VIEW: Error = Error::line("ERR there is no lock view: the directive lock-view is no");
