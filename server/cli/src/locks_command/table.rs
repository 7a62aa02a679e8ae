//! The locks as lines: a table, or JSON; once, or repeatedly.

use std::io::{self, Write};
use std::thread;

use super::reading::{Client, Lock, Reading, connect, read};
use super::text::{follower_note, printable, span};
use crate::limits::WATCH_INTERVAL;
use crate::redis_cli::connection::error_text;
use crate::redis_cli::server_options::ServerOptions;

/// Prints the locks whose keys match; with `again`, until the output is closed.
pub(super) fn show(
    server: &ServerOptions,
    pattern: &str,
    json: bool,
    again: bool,
) -> Result<(), String> {
    let address = server.address();
    let failed =
        |error: io::Error| format!("Could not read the locks of {address}: {}", error_text(&error));
    let mut connection = connect(server, None).map_err(failed)??;
    let mut is_noted = false;
    loop {
        let reading = read(&mut connection, pattern).map_err(failed)??;
        let leader = reading.leader.as_deref();
        let note = leader.map(|leader| follower_note(leader) + "\n").unwrap_or_default();
        let text = if json {
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
        if write!(out, "{text}").and_then(|()| out.flush()).is_err() || !again {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "a view for people, at regular times")]
        thread::sleep(WATCH_INTERVAL);
    }
}

fn lines(locks: &[serde_json::Value]) -> String {
    locks.iter().map(|lock| format!("{lock}\n")).collect()
}

const HEAD: [&str; 8] = ["KEY", "DB", "KIND", "HOLDERS", "HELD", "LEASE", "RENEWALS", "WAITING"];

/// The locks in columns, those that are held longest first.
fn table(Reading { locks, now_ms, .. }: Reading) -> Result<String, String> {
    let parsed: Result<Vec<Lock>, _> = locks.into_iter().map(serde_json::from_value).collect();
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
