//! Commands of pages, and their errors as replies of HTTP.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use lockwheel::{Client, ErrorKind, Reply};
use tokio::sync::Mutex;

use super::within::within;
use crate::limits;

/// Why a node without a leader has no locks to show.
pub(crate) const NO_LEADER: &str = "no leader: more than half of the nodes must be in contact";

/// A client within the process, which runs the commands of one user.
pub(super) type Commands = Arc<Mutex<Client>>;

/// Why a page has no contents.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server does not reply, or has ended.
    Unavailable(String),
    /// The client is not connected any more, as its user has been removed.
    Ended,
    /// The reply is an error.
    Refused(String),
}

/// Runs commands on a thread that may wait for a slow script, for a limited time.
pub(super) async fn run<T: Send + 'static>(
    commands: &Commands,
    action: impl FnOnce(&mut Client) -> Result<T, lockwheel::Error> + Send + 'static,
) -> Result<T, Failure> {
    let commands = Arc::clone(commands);
    let done = async {
        // At most one request of a user waits on the thread.
        let mut client = commands.lock_owned().await;
        tokio::task::spawn_blocking(move || action(&mut client)).await
    };
    match within(limits::ADMIN_COMMAND_TIMEOUT, done).await {
        Some(Ok(result)) => result.map_err(|error| Failure::of(&error)),
        Some(Err(_)) => Err(Failure::Unavailable("the command has failed".to_owned())),
        None => {
            let reason = "the server does not reply: it runs a slow command, or is paused";
            Err(Failure::Unavailable(reason.to_owned()))
        }
    }
}

/// Runs one command, whose reply is a text.
pub(super) async fn text(commands: &Commands, words: Vec<Vec<u8>>) -> Result<String, Failure> {
    let reply = run(commands, move |client| client.call(&words)).await?;
    let (Reply::Bulk(text) | Reply::Verbatim { text, .. }) = reply else {
        return Err(Failure::Unavailable("the reply is no text".to_owned()));
    };
    String::from_utf8(text.to_vec()).map_err(|error| Failure::Unavailable(error.to_string()))
}

impl Failure {
    fn of(error: &lockwheel::Error) -> Failure {
        match error.kind() {
            ErrorKind::Reply => Failure::Refused(error.to_string()),
            ErrorKind::Stopped => Failure::Ended,
            _ => Failure::Unavailable(error.to_string()),
        }
    }

    /// The text for the reader.
    pub(super) fn reason(&self) -> &str {
        match self {
            Failure::Refused(line) if line.starts_with("MASTERDOWN ") => NO_LEADER,
            Failure::Unavailable(reason) | Failure::Refused(reason) => reason,
            Failure::Ended => "the login has ended, or the server ends",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Failure::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Ended => StatusCode::UNAUTHORIZED,
            Failure::Refused(line) => match line.split(' ').next().unwrap_or_default() {
                "NOPERM" | "NOAUTH" | "WRONGPASS" => StatusCode::FORBIDDEN,
                "ERR" => StatusCode::BAD_REQUEST,
                // The server starts, runs a slow script, or has no memory left.
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        error(self.status(), self.reason())
    }
}

/// An error as JSON.
pub(super) fn error(status: StatusCode, reason: &str) -> Response {
    json(status, serde_json::json!({ "error": reason }).to_string())
}

/// A reply of JSON.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}
