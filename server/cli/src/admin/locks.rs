//! The pages about locks: `/locks`, `/locks/{key}`, `/events`, and forced release.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use lockwheel::Reply;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::warn;

use super::access::{Admin, Caller, is_same_origin};
use super::commands::{Failure, error, json, run, text};
use crate::limits;

/// Which locks to show.
#[derive(Deserialize)]
pub(super) struct Selection {
    #[serde(rename = "match")]
    pattern: Option<String>,
    cursor: Option<String>,
    count: Option<usize>,
}

/// `/locks`: the locks that the user may see, a part at a time.
pub(super) async fn list(
    caller: Caller,
    Query(selection): Query<Selection>,
) -> Result<Response, Failure> {
    let count = selection.count.unwrap_or(limits::ADMIN_LOCKS_DEFAULT);
    let count = count.clamp(1, limits::ADMIN_LOCKS_MAX).to_string();
    let cursor = selection.cursor.as_deref().unwrap_or("0");
    let mut command = words(&["LOCKWHEEL", "LOCKS", "CURSOR", cursor, "COUNT", &count]);
    if let Some(pattern) = selection.pattern {
        command.extend(words(&["MATCH", &pattern]));
    }
    Ok(json(StatusCode::OK, text(&caller.commands, command).await?))
}

/// The database of a key.
#[derive(Deserialize)]
pub(super) struct DatabaseQuery {
    #[serde(default)]
    database: u32,
}

/// `/locks/{key}`: one lock, its history, and whether the user may release it.
pub(super) async fn details(
    State(admin): State<Arc<Admin>>,
    caller: Caller,
    uri: Uri,
    Query(DatabaseQuery { database }): Query<DatabaseQuery>,
) -> Result<Response, Failure> {
    let key = key_of(uri.path());
    let mut command = words(&["LOCKWHEEL", "LOCKS", "KEY"]);
    command.push(key.clone());
    command.extend(words(&["DATABASE", &database.to_string()]));
    let found = text(&caller.commands, command).await?;
    let may_release = may_release(&admin, &caller, key, database).await?;
    let rest = found.strip_prefix('{').unwrap_or("}");
    Ok(json(StatusCode::OK, format!("{{\"may_release\":{may_release},{rest}")))
}

/// Whether the user may release a lock by force.
async fn may_release(
    admin: &Admin,
    caller: &Caller,
    key: Vec<u8>,
    database: u32,
) -> Result<bool, Failure> {
    if Arc::ptr_eq(&caller.commands, &admin.system) {
        return Ok(true);
    }
    let mut command = words(&["ACL", "DRYRUN", &caller.user]);
    command.extend(release_command(key, database));
    let reply = run(&admin.system, move |client| client.call_raw(&command)).await?;
    Ok(reply == Reply::OK)
}

/// The body of a forced release.
#[derive(Deserialize)]
struct Release {
    #[serde(default)]
    database: u32,
}

/// `POST /locks/{key}/release`: releases a lock by force.
pub(super) async fn release(
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    if !caller.has_token(&headers) || !is_same_origin(&headers) {
        return Ok(error(StatusCode::FORBIDDEN, "the header X-CSRF-Token is missing or wrong"));
    }
    let Ok(Release { database }) = serde_json::from_slice(&body) else {
        return Ok(error(StatusCode::BAD_REQUEST, "the body must be like {\"database\":0}"));
    };
    let key = key_of(uri.path().strip_suffix("/release").unwrap_or_default());
    let command = release_command(key.clone(), database);
    let reply = run(&caller.commands, move |client| client.call(&command)).await?;
    let is_released = reply == Reply::Integer(1);
    let key = key.escape_ascii();
    warn!(user = ?caller.user, %key, database, is_released, "forced release for monitoring");
    Ok(json(StatusCode::OK, serde_json::json!({ "released": is_released }).to_string()))
}

fn release_command(key: Vec<u8>, database: u32) -> Vec<Vec<u8>> {
    let mut command = words(&["LOCKWHEEL", "RELEASE"]);
    command.push(key);
    command.extend(words(&["DATABASE", &database.to_string()]));
    command
}

/// Where events begin.
#[derive(Deserialize)]
pub(super) struct Since {
    #[serde(default)]
    since: u64,
}

/// `/events`: events of locks, as they happen.
pub(super) async fn events(
    State(admin): State<Arc<Admin>>,
    caller: Caller,
    Query(Since { since }): Query<Since>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let sequence = last.unwrap_or(since);
    let mut source = EventSource { admin, caller, sequence, is_behind: false };
    // A user that may not see them, or a server that is not ready, is an error of the page.
    let first = source.read().await?;
    let messages = stream::unfold((source, Some(first)), |(mut source, first)| async {
        let message = match first.filter(EventList::has_news) {
            Some(message) => message,
            None => source.next().await?,
        };
        let event = Event::default().id(source.sequence.to_string()).data(message.text);
        Some((Ok::<Event, Infallible>(event), (source, None)))
    });
    let keep_alive = KeepAlive::new().interval(limits::ADMIN_KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(messages).keep_alive(keep_alive).into_response())
}

/// What one connection reads events with.
struct EventSource {
    admin: Arc<Admin>,
    caller: Caller,
    /// The number of the last event that has been read.
    sequence: u64,
    /// Whether there may be more events already.
    is_behind: bool,
}

/// The reply of the server.
struct EventList {
    text: String,
    head: EventListHead,
}

#[derive(Deserialize)]
struct EventListHead {
    sequence: u64,
    missed: bool,
    events: Vec<IgnoredAny>,
}

impl EventList {
    fn has_news(&self) -> bool {
        self.head.missed || !self.head.events.is_empty()
    }
}

impl EventSource {
    /// Waits for events; `None` if there will be no more, as the user has logged out.
    async fn next(&mut self) -> Option<EventList> {
        loop {
            if !self.is_behind {
                tokio::time::sleep(limits::ADMIN_EVENTS_INTERVAL).await;
            }
            if self.caller.session.as_ref().is_some_and(|id| !self.admin.has_session(id)) {
                return None;
            }
            match self.read().await {
                Ok(list) if list.has_news() => return Some(list),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    async fn read(&mut self) -> Result<EventList, Failure> {
        let command = words(&["LOCKWHEEL", "LOCKS", "SINCE", &self.sequence.to_string()]);
        let text = text(&self.caller.commands, command).await?;
        let head: EventListHead =
            serde_json::from_str(&text).map_err(|error| Failure::Unavailable(error.to_string()))?;
        self.sequence = head.sequence;
        self.is_behind = head.events.len() >= limits::ADMIN_EVENTS_MAX;
        Ok(EventList { text, head })
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The key in the path of a page, whose bytes are percent-encoded.
fn key_of(path: &str) -> Vec<u8> {
    percent_decode_str(path.strip_prefix("/locks/").unwrap_or_default()).collect()
}
