//! `lockwheel locks`: shows which client holds which lock and which clients wait, as a table or as
//! JSON, once or repeatedly. It uses the server only through a connection.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use lockwheel_resp::Reply;
use serde::Deserialize;

use crate::admin::commands::NO_LEADER;
use crate::limits::{LOCKS_PER_REQUEST, WATCH_INTERVAL};
use crate::redis_cli::connection::{Connection, Protocol, error_text};
use crate::redis_cli::server_options::{ServerOptions, without_uri};

/// Shows which client holds which lock, and which clients wait for it
#[derive(Parser)]
#[command(name = "lockwheel locks", disable_help_flag = true)]
struct Arguments {
    #[command(flatten)]
    server: ServerOptions,
    /// Show the locks again every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Print JSON: one line for each lock
    #[arg(long)]
    json: bool,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Only keys that match this pattern, as for KEYS
    #[arg(default_value = "*")]
    pattern: String,
}

/// A reply of `LOCKWHEEL LOCKS`.
#[derive(Deserialize)]
struct Page {
    now_ms: i64,
    cursor: String,
    /// On a follower, the address of its leader; empty if it is not known.
    leader: Option<String>,
    locks: Vec<serde_json::Value>,
}

/// All locks at one time.
struct Reading {
    now_ms: i64,
    leader: Option<String>,
    locks: Vec<serde_json::Value>,
}

/// A lock, as far as the table shows it.
#[derive(Deserialize)]
struct LockRow {
    key: String,
    database: usize,
    kind: String,
    holders: Vec<Client>,
    since_ms: i64,
    lease_ms: Option<i64>,
    renewals: u64,
    waiters: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    client: u64,
    name: String,
    address: String,
    /// The owner of a native lock, if the user may see it.
    owner: Option<String>,
}

impl Client {
    /// The name, else the owner, the address or the id.
    fn label(&self) -> String {
        let texts = [&*self.name, self.owner.as_deref().unwrap_or_default(), &*self.address];
        match (texts.into_iter().find(|text| !text.is_empty()), self.client) {
            (Some(text), _) => text.to_owned(),
            (None, 0) => "unknown".to_owned(),
            (None, id) => format!("client {id}"),
        }
    }
}

/// Runs the subcommand with the arguments after its name.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            let status = u8::from(error.use_stderr());
            let _ = without_uri(error).print();
            return ExitCode::from(status);
        }
    };
    arguments.server.hide_password();
    match show(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(&error),
    }
}

fn show(arguments: &Arguments) -> Result<(), String> {
    let address = arguments.server.address();
    let failed =
        |error: io::Error| format!("Could not read the locks of {address}: {}", error_text(&error));
    let mut connection = arguments.server.connect(None).map_err(failed)?;
    connection.log_in(&arguments.server.login(Protocol::Resp2)).map_err(failed)??;
    let mut is_noted = false;
    loop {
        let reading = read(&mut connection, &arguments.pattern).map_err(failed)??;
        let note = reading.leader.as_deref().map(follower_note).unwrap_or_default();
        let text = if arguments.json {
            // The output is JSON only.
            if !is_noted {
                let _ = io::stderr().write_all(note.as_bytes());
            }
            is_noted = true;
            lines(&reading.locks)
        } else {
            note + &table(reading)?
        };
        let mut out = io::stdout().lock();
        let is_screen = arguments.watch && !arguments.json && out.is_terminal();
        // Clears the screen.
        let begin = if is_screen { "\x1b[H\x1b[2J" } else { "" };
        if write!(out, "{begin}{text}").and_then(|()| out.flush()).is_err() || !arguments.watch {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "a view for people, at regular times")]
        thread::sleep(WATCH_INTERVAL);
    }
}

/// The line above the locks of a follower of this leader.
fn follower_note(leader: &str) -> String {
    let leader = if leader.is_empty() { "a leader that is not known" } else { leader };
    format!("follower of {}: holders and waiting clients are shown there\n", printable(leader))
}

/// Reads all locks in parts, so that other clients of the server need not wait.
fn read(connection: &mut Connection, pattern: &str) -> io::Result<Result<Reading, String>> {
    let (mut cursor, mut locks) = ("0".to_owned(), Vec::new());
    loop {
        let count = LOCKS_PER_REQUEST.to_string();
        connection.send(&[
            "LOCKWHEEL",
            "LOCKS",
            "MATCH",
            pattern,
            "CURSOR",
            &cursor,
            "COUNT",
            &count,
        ])?;
        let text = match connection.read()? {
            Reply::Bulk(text) => text,
            Reply::Error(line) if line.starts_with(b"MASTERDOWN ") => {
                return Ok(Err(NO_LEADER.to_owned()));
            }
            Reply::Error(line) => return Ok(Err(String::from_utf8_lossy(&line).into_owned())),
            _ => return Ok(Err("the server has sent an unexpected reply".to_owned())),
        };
        let mut page: Page = serde_json::from_slice(&text)?;
        locks.append(&mut page.locks);
        if page.cursor == "0" {
            let Page { now_ms, leader, .. } = page;
            return Ok(Ok(Reading { now_ms, leader, locks }));
        }
        cursor = page.cursor;
    }
}

fn lines(locks: &[serde_json::Value]) -> String {
    locks.iter().map(|lock| format!("{lock}\n")).collect()
}

const HEAD: [&str; 8] = ["KEY", "DB", "KIND", "HOLDERS", "HELD", "LEASE", "RENEWALS", "WAITING"];

/// The locks in columns, those that are held longest first.
fn table(Reading { locks, now_ms, .. }: Reading) -> Result<String, String> {
    let parsed: Result<Vec<LockRow>, _> = locks.into_iter().map(serde_json::from_value).collect();
    let mut locks = parsed.map_err(|error| error.to_string())?;
    locks.sort_by(|a, b| (a.since_ms, &a.key).cmp(&(b.since_ms, &b.key)));
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(locks.iter().map(|lock| {
        let holders: Vec<String> = lock.holders.iter().map(Client::label).collect();
        [
            printable(&lock.key),
            lock.database.to_string(),
            lock.kind.clone(),
            printable(&holders.join(", ")),
            if lock.since_ms == 0 { "?".to_owned() } else { span(now_ms - lock.since_ms) },
            lock.lease_ms.map_or("none".to_owned(), span),
            lock.renewals.to_string(),
            lock.waiters.len().to_string(),
        ]
    }));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<String>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// A span of time to a tenth of a second.
fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A text in which the codes of invisible characters are visible: such characters could change the
/// terminal, and make two names look alike.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if is_invisible(char) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// Whether a character is invisible or changes the direction. The page of locks has the same list.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}
