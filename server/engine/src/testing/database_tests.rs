//! Tests with the same key name in several databases: a change in one affects only the watches,
//! waiting clients and events of that database.

use crate::settings::Settings;
use crate::store::events::Events;
use crate::testing::{Stage, check, render, split_outside_quotes};

/// Commands of a client in database 1, where `k` is a string and `l` a list. Each of them changes
/// `k`.
const CHANGES: &[&str] = &[
    "SET k w",
    "SET k w XX",
    "APPEND k w",
    "DEL k",
    "GETDEL k",
    "GETEX k PX 10",
    "PEXPIRE k 10",
    "PEXPIRE k 0",
    "RENAME k other",
    "RENAME l k",
    "COPY l k REPLACE",
    "MOVE k 3",
    "FLUSHDB",
    "EVAL \"redis.call('set', KEYS[1], 'w')\" 1 k",
    "EVAL \"redis.call('select', 1) redis.call('del', 'k')\" 0",
    "MULTI; SET k w; EXEC",
    "SELECT 2; COPY k k DB 1 REPLACE; SELECT 1",
    "SWAPDB 1 3",
    "SWAPDB 3 1",
];

fn three_databases() -> Stage {
    let mut stage = Stage::new(Settings::default());
    stage.check("b> SELECT 2; b> SET k v; b> SELECT 0; b> SET k v");
    stage.check("b> SELECT 1; b> SET k v; b> RPUSH l a");
    stage
}

/// Prefixes commands, separated by `;`, with the name of another client.
fn as_client(name: &str, commands: &str) -> String {
    split_outside_quotes(commands, ';')
        .iter()
        .map(|command| format!("{name}> {}; ", command.trim()))
        .collect()
}

#[test]
fn key_watched_in_two_databases_is_watched_in_both() {
    for change in CHANGES {
        let change = as_client("b", change);
        for watch in [
            "WATCH k; SELECT 1; WATCH k; SELECT 0",
            "SELECT 1; WATCH k; SELECT 0; WATCH k",
            "WATCH k; SELECT 1; WATCH other k; WATCH k k; SELECT 2; WATCH k",
        ] {
            three_databases().check(&format!("{watch}; {change} MULTI; PING; EXEC => nil-array"));
        }
    }
}

#[test]
fn key_watched_in_one_database_may_change_in_another() {
    for change in CHANGES {
        let change = as_client("b", change);
        for watch in ["WATCH k", "SELECT 2; WATCH k"] {
            three_databases().check(&format!("{watch}; {change} MULTI; PING; EXEC => [PONG]"));
        }
    }
    // Selecting another database does not move the watch.
    three_databases().check("WATCH k; SELECT 1; b> SET k w; MULTI; PING; EXEC => [PONG]");
    three_databases()
        .check("SELECT 1; WATCH k; SELECT 0; b> SET k w; MULTI; PING; EXEC => nil-array");
}

#[test]
fn expiration_breaks_only_the_watches_of_its_database() {
    for active_expiry in [true, false] {
        for (watch, expected) in [
            ("WATCH k", "[PONG]"),
            ("SELECT 1; WATCH k", "nil-array"),
            ("WATCH k; SELECT 1; WATCH k", "nil-array"),
            ("SELECT 1; WATCH k; SELECT 2; WATCH k", "nil-array"),
        ] {
            let mut stage = three_databases();
            stage.engine.writer.set_active_expiry(active_expiry);
            stage.check(&format!("b> PEXPIRE k 10; {watch}; +9999us"));
            stage.check("MULTI; PING; EXEC => [PONG]");
            stage.check(&format!("SELECT 0; {watch}; +1us; MULTI; PING; EXEC => {expected}"));
        }
    }
}

#[test]
fn unwatching_ends_the_watches_of_all_databases() {
    for end in ["UNWATCH", "MULTI; DISCARD", "MULTI; EXEC"] {
        three_databases().check(&format!(
            "WATCH k; SELECT 1; WATCH k; {end}; b> SET k w; b> SELECT 0; b> SET k w; \
             MULTI; PING; EXEC => [PONG]"
        ));
    }
    let mut stage = three_databases();
    stage.check("WATCH k; SELECT 1; WATCH k; c> WATCH k; UNWATCH");
    for (database, watchers) in [(0, 1), (1, 0)] {
        assert_eq!(stage.engine.sessions.watchers.keys_of(database), watchers);
    }
}

#[test]
fn watch_belongs_to_the_number_of_a_database() {
    let swapped = "SWAPDB 0 3";
    // The watch breaks only if the key exists in one of the two databases.
    check(&format!("WATCH k; b> {swapped}; MULTI; PING; EXEC => [PONG]"));
    check(&format!("SET other v; WATCH k; b> {swapped}; MULTI; PING; EXEC => [PONG]"));
    check(&format!("SET k v; WATCH k; b> {swapped}; MULTI; PING; EXEC => nil-array"));
    check(&format!(
        "b> SELECT 3; b> SET k v; WATCH k; b> {swapped}; MULTI; PING; EXEC => nil-array"
    ));
    check("WATCH k; b> SWAPDB 0 3; b> SET k v; MULTI; PING; EXEC => nil-array");
    check("SELECT 3; WATCH k; b> SWAPDB 0 3; b> SET k v; MULTI; PING; EXEC => [PONG]");
    check("SET k v; WATCH k; b> SWAPDB 0 0; b> SWAPDB 1 2; MULTI; PING; EXEC => [PONG]");
    check("WATCH k; b> SWAPDB 0 0; b> SET k v; MULTI; PING; EXEC => nil-array");
    check("WATCH k; b> SWAPDB 0 1; UNWATCH; b> SET k v; MULTI; PING; EXEC => [PONG]");
}

#[test]
fn flush_of_all_databases_changes_existing_keys() {
    check("SET k v; WATCH k; b> FLUSHALL ASYNC; MULTI; PING; EXEC => nil-array");
    check("SET k v; WATCH other; b> FLUSHALL; MULTI; PING; EXEC => [PONG]");
}

#[test]
fn waiter_is_served_from_its_own_database() {
    for (wait, fill, served) in [
        ("BLPOP l 0", "RPUSH l a", "[\"l\", \"a\"]"),
        ("BLMOVE l m LEFT LEFT 0", "RPUSH l a", "\"a\""),
        ("BLMPOP 0 1 l LEFT", "RPUSH l a", "[\"l\", [\"a\"]]"),
        ("BZPOPMIN l 0", "ZADD l 1 a", "[\"l\", \"a\", \"1\"]"),
        ("XREAD BLOCK 0 STREAMS l $", "XADD l 1-1 f v", "[[\"l\", [[\"1-1\", [\"f\", \"v\"]]]]]"),
    ] {
        // The other client waits in database 1 and gets nothing from database 0.
        let wait = format!("b> SELECT 1; b> {wait}; c> {wait};");
        check(&format!("{wait} {fill}; c< => {served}; b< => ; SELECT 1; {fill}; b< => {served}"));
        check(&format!("{wait} SELECT 1; {fill}; c< => ; b< => {served}"));
        check(&format!(
            "{wait} SELECT 2; {fill}; c< => ; b< => ; MOVE l 1; c< => ; b< => {served}"
        ));
        check(&format!("{wait} SELECT 2; {fill}; COPY l l DB 1; c< => ; b< => {served}"));
        check(&format!("{wait} SELECT 2; {fill}; SWAPDB 2 1; c< => ; b< => {served}"));
        check(&format!("{wait} SELECT 2; {fill}; SWAPDB 0 2; b< => ; c< => {served}"));
        check(&format!("{wait} MULTI; SELECT 1; {fill}; SELECT 0; EXEC; c< => ; b< => {served}"));
    }
}

#[test]
fn events_name_the_database_they_happened_in() {
    let mut settings = Settings::default();
    settings.notify_keyspace_events = Events::KEYSPACE | Events::ALL | Events::NEW;
    let check_events = |commands: &str, expected: &str| {
        let mut stage = Stage::new(settings.clone());
        stage.check("l> PSUBSCRIBE *; b> SELECT 1; b> SET k v; l<");
        stage.check("l<");
        stage.check(commands);
        let events: Vec<String> = (stage.answers("l<").iter())
            .map(|message| {
                let text = render(message);
                let parts: Vec<&str> = text.split('"').collect();
                format!("{} {}", parts[5].trim_start_matches("__keyspace@"), parts[7])
            })
            .collect();
        assert_eq!(events.join(", "), expected, "{commands}");
    };
    check_events("b> DEL k", "1__:k del");
    check_events("b> MOVE k 2", "2__:k new, 1__:k move_from, 2__:k move_to");
    check_events("b> COPY k k DB 2", "2__:k new, 2__:k copy_to");
    check_events("b> COPY k other", "1__:other new, 1__:other copy_to");
    check_events("b> RENAME k other", "1__:other new, 1__:k rename_from, 1__:other rename_to");
    check_events("b> PEXPIRE k 10; +10ms", "1__:k expire, 1__:k expired");
    check_events("b> PEXPIRE k 10; b> SWAPDB 1 2; +10ms", "1__:k expire, 2__:k expired");
    check_events(
        "b> PEXPIRE k 10; b> MOVE k 2; +10ms",
        "1__:k expire, 2__:k new, 1__:k move_from, 2__:k move_to, 2__:k expired",
    );
    check_events(
        "b> EVAL \"redis.call('select', 2) redis.call('set', 'k', 'w')\" 0",
        "2__:k new, 2__:k set",
    );
    check_events(
        "b> MULTI; b> SELECT 2; b> SET k w; b> EXEC; b> SET k x",
        "2__:k new, 2__:k set, 2__:k set",
    );
}

#[test]
fn the_same_lock_name_is_free_in_every_database() {
    check("SET k v NX => OK; SELECT 1; SET k v NX => OK; SETNX k v => 0; SELECT 2; SETNX k v => 1");
    check("HSETNX k f v => 1; SELECT 1; HSETNX k f v => 1; SELECT 0; HSETNX k f v => 0");
    check("SET k v PX 10; SELECT 1; SET k v PX 20; +10ms; EXISTS k => 1; SELECT 0; EXISTS k => 0");
    check(
        "SET k v PX 10; MOVE k 1 => 1; SELECT 1; SET k w NX => nil; +9999us; SETNX k w => 0; \
         +1us; SETNX k w => 1",
    );
    check(
        "SET k v PX 10; SWAPDB 0 1; SET k w NX => OK; SELECT 1; SET k w NX => nil; +10ms; \
         SET k w NX => OK",
    );
}
