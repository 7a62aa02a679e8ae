//! Reads the locks of a server, and one lock with its history, with `LOCKWHEEL LOCKS`.

use std::io;
use std::time::Duration;

use lockwheel_resp::Reply;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::admin::commands::NO_LEADER;
use crate::limits::LOCKS_PER_REQUEST;
use crate::redis_cli::connection::{Connection, Protocol};
use crate::redis_cli::server_options::ServerOptions;

/// What the server has replied, or the error that it has replied.
pub(super) type Answer<T> = io::Result<Result<T, String>>;

/// A reply of `LOCKWHEEL LOCKS`.
#[derive(Deserialize)]
struct Page {
    now_ms: i64,
    cursor: String,
    leader: Option<String>,
    locks: Vec<serde_json::Value>,
}

/// All locks at one time.
pub(super) struct Reading {
    pub(super) now_ms: i64,
    /// On a follower, the address of its leader; empty if it is not known.
    pub(super) leader: Option<String>,
    pub(super) locks: Vec<serde_json::Value>,
}

/// A lock. Fields with a default are newer than the others.
#[derive(Clone, Deserialize)]
pub(super) struct Lock {
    pub(super) key: String,
    /// The key with percent-encoding, if it is not UTF-8.
    key_encoded: Option<String>,
    pub(super) database: usize,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) confidence: String,
    #[serde(default)]
    pub(super) reason: String,
    pub(super) holders: Vec<Client>,
    pub(super) since_ms: i64,
    pub(super) lease_ms: Option<i64>,
    pub(super) lease_full_ms: Option<i64>,
    pub(super) renewals: u64,
    pub(super) waiters: Vec<Client>,
    #[serde(default)]
    pub(super) refusals: u64,
}

impl Lock {
    /// The database and the key.
    pub(super) fn id(&self) -> LockId {
        let key = match &self.key_encoded {
            Some(encoded) => percent_decode_str(encoded).collect(),
            None => self.key.clone().into_bytes(),
        };
        LockId { database: self.database, key }
    }
}

/// What distinguishes a lock from all others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LockId {
    database: usize,
    key: Vec<u8>,
}

/// A client that holds a lock or waits for it.
#[derive(Clone, Deserialize)]
pub(super) struct Client {
    /// 0 if it is not known.
    pub(super) client: u64,
    pub(super) name: String,
    /// Empty if it is not connected.
    pub(super) address: String,
    #[serde(default)]
    pub(super) user: String,
    /// How it waits.
    #[serde(default)]
    pub(super) how: String,
    /// How often it holds the lock.
    #[serde(default)]
    pub(super) count: i64,
    /// The owner of a native lock, its fencing token and its `META`, if the user may see them.
    pub(super) owner: Option<String>,
    pub(super) token: Option<u64>,
    pub(super) meta: Option<String>,
}

impl Client {
    /// The name, else the owner, the address or the id.
    pub(super) fn label(&self) -> String {
        let texts = [&*self.name, self.owner.as_deref().unwrap_or_default(), &*self.address];
        match (texts.into_iter().find(|text| !text.is_empty()), self.client) {
            (Some(text), _) => text.to_owned(),
            (None, 0) => "unknown".to_owned(),
            (None, id) => format!("client {id}"),
        }
    }

    /// Whether it was connected when it acquired the lock, and is not any more.
    pub(super) fn is_disconnected(&self) -> bool {
        self.client != 0 && self.address.is_empty()
    }
}

/// A reply of `LOCKWHEEL LOCKS KEY`: a lock, if it is held, and its history.
#[derive(Deserialize)]
pub(super) struct Details {
    pub(super) now_ms: i64,
    /// As in [`Reading`].
    pub(super) leader: Option<String>,
    pub(super) lock: Option<Lock>,
    /// The oldest event first.
    pub(super) history: Vec<Event>,
}

#[derive(Deserialize)]
pub(super) struct Event {
    pub(super) at_ms: i64,
    pub(super) event: String,
    pub(super) client: u64,
}

/// Connects and logs in. `limit` is as for [`Connection::open`].
pub(super) fn connect(server: &ServerOptions, limit: Option<Duration>) -> Answer<Connection> {
    let mut connection = server.connect(limit)?;
    let login = connection.log_in(&server.login(Protocol::Resp2))?;
    Ok(login.map(|()| connection))
}

/// Reads all locks in parts, so that other clients of the server need not wait.
pub(super) fn read(connection: &mut Connection, pattern: &str) -> Answer<Reading> {
    let (mut cursor, mut locks) = ("0".to_owned(), Vec::new());
    loop {
        let count = LOCKS_PER_REQUEST.to_string();
        let words = ["LOCKWHEEL", "LOCKS", "MATCH", pattern, "CURSOR", &cursor, "COUNT", &count];
        let mut page: Page = match ask(connection, &words)? {
            Ok(page) => page,
            Err(text) => return Ok(Err(text)),
        };
        locks.append(&mut page.locks);
        if page.cursor == "0" {
            let Page { now_ms, leader, .. } = page;
            return Ok(Ok(Reading { now_ms, leader, locks }));
        }
        cursor = page.cursor;
    }
}

/// Reads one lock.
pub(super) fn read_details(connection: &mut Connection, id: &LockId) -> Answer<Details> {
    let database = id.database.to_string();
    let words = ["LOCKWHEEL", "LOCKS", "KEY", "", "DATABASE", &database];
    let mut words = words.map(str::as_bytes);
    words[3] = &id.key;
    ask(connection, &words)
}

/// The role and the version of the server, or nothing if the user may not see them.
pub(super) fn read_role(connection: &mut Connection) -> io::Result<String> {
    connection.send(&["INFO", "server", "lockwheel"])?;
    let Reply::Bulk(text) = connection.read()? else { return Ok(String::new()) };
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let role = match (field("raft_role"), field("raft_has_leader")) {
        (Some(_), Some("0")) => "no leader",
        (Some(role), _) => role,
        (None, _) => "standalone",
    };
    Ok(format!("{role}, version {}", field("lockwheel_version").unwrap_or("unknown")))
}

/// Runs a command whose reply is JSON.
fn ask<T: DeserializeOwned, A: AsRef<[u8]>>(connection: &mut Connection, words: &[A]) -> Answer<T> {
    connection.send(words)?;
    match connection.read()? {
        Reply::Bulk(text) => Ok(Ok(serde_json::from_slice(&text)?)),
        Reply::Error(line) if line.starts_with(b"MASTERDOWN ") => Ok(Err(NO_LEADER.to_owned())),
        Reply::Error(line) if line.starts_with(b"ERR unknown command") => Ok(Err(
            "This server cannot show which clients hold locks and which wait: it has no command \
             LOCKWHEEL, as only Lockwheel has"
                .to_owned(),
        )),
        Reply::Error(line) => Ok(Err(String::from_utf8_lossy(&line).into_owned())),
        _ => Ok(Err("the server has sent an unexpected reply".to_owned())),
    }
}
