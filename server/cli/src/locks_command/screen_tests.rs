//! Tests of the screen of `lockwheel locks --watch`: what it shows, and what keys do, without a
//! terminal and a server.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::reading::{Details, Lock};
use super::screen::{alarm, draw};
use super::view::{State, View};

/// 2026-11-30 12:34:56.
const AT_MS: i64 = 1_796_042_096_000;

/// The lines of a screen of 80 columns that most tests expect: the server, the order of the locks,
/// the head of the table, and the keys.
const TITLE: &str =
    "127.0.0.1:6379                                         standalone, version 0.1.0";
const ORDER: &str =
    "Sorted by key                                              State of 12:34:56 UTC";
const TABLE: &str =
    "Key                        Holder                    Waiting  Held for     Lease";
const KEYS: &str = "Arrows scroll  s sort  / filter  Enter details  q end";

fn client(id: u64, name: &str, how: &str) -> Value {
    let address = format!("10.0.0.{id}:4000");
    json!({"client": id, "name": name, "address": address, "user": "default", "how": how})
}

fn lock(key: &str, holders: &Value, age_ms: i64, lease_ms: Option<i64>, waiters: &Value) -> Value {
    json!({
        "key": key, "database": 0, "kind": "token", "confidence": "likely",
        "reason": "its name has a word for a lock", "holders": holders,
        "since_ms": AT_MS - age_ms, "lease_ms": lease_ms, "lease_full_ms": lease_ms,
        "renewals": 2, "waiters": waiters, "refusals": 3,
    })
}

/// A lock without a lease, of which neither holder nor waiting clients are known.
fn plain(key: &str) -> Value {
    lock(key, &json!([]), 1, None, &json!([]))
}

fn state(locks: &[Value]) -> State {
    let locks = locks.iter().map(|lock| serde_json::from_value::<Lock>(lock.clone()));
    State {
        at_ms: AT_MS,
        now_ms: AT_MS,
        leader: None,
        role: "standalone, version 0.1.0".to_owned(),
        locks: locks.collect::<Result<_, _>>().expect("locks"),
        details: None,
    }
}

/// Three locks: with a waiting client; without a lease; with a long, strange key.
fn three() -> Vec<Value> {
    let gone = json!([{"client": 9, "name": "", "address": "", "user": ""}]);
    let waiters = json!([client(2, "worker-2", "queued"), client(3, "", "refused")]);
    let two = json!([client(4, "", ""), client(5, "", "")]);
    let long = format!("orders:\u{202e}{}:the-end", "x".repeat(200));
    vec![
        lock("lock:b", &json!([client(1, "worker-1", "")]), 12_300, Some(29_900), &waiters),
        lock("lock:a", &gone, 3_725_000, None, &json!([])),
        lock(&long, &two, 0, Some(60_000), &json!([])),
    ]
}

fn view_of(locks: &[Value]) -> View {
    View::new("127.0.0.1:6379".to_owned(), state(locks))
}

fn terminal_of(
    view: &mut View,
    width: u16,
    height: u16,
    has_colors: bool,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, view, alarm(has_colors))).expect("a screen");
    terminal
}

/// The lines of a screen, without the spaces at their ends and the empty lines before the last.
struct Screen(Vec<String>);

fn screen(view: &mut View, width: u16, height: u16) -> Screen {
    let terminal = terminal_of(view, width, height, true);
    let cells = terminal.backend().buffer().content().chunks(usize::from(width));
    let lines = cells.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>());
    let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    let last = lines.pop().expect("a line");
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(last);
    Screen(lines)
}

/// The screen of a common terminal.
fn common(view: &mut View) -> Screen {
    screen(view, 80, 24)
}

impl Screen {
    #[track_caller]
    fn check(&self, expected: &[&str]) {
        assert_eq!(self.0, expected, "\n{}", self.0.join("\n"));
    }

    /// As [`Screen::check`], for the lines between the head and the line at the bottom.
    #[track_caller]
    fn check_body(&self, expected: &[&str]) {
        assert_eq!(self.0[3..self.0.len() - 1], *expected, "\n{}", self.0.join("\n"));
    }
}

fn press(view: &mut View, code: KeyCode) {
    assert!(view.press(KeyEvent::from(code)));
}

fn type_text(view: &mut View, text: &str) {
    text.chars().for_each(|char| press(view, KeyCode::Char(char)));
}

/// The keys of the rows in order, with the selected one in brackets.
fn keys(view: &View) -> String {
    let key = |(at, place): (usize, &usize)| {
        let key = &view.state.locks[*place].key;
        if at == view.selected { format!("[{key}]") } else { key.clone() }
    };
    view.rows.iter().enumerate().map(key).collect::<Vec<_>>().join(" ")
}

#[test]
fn screen_shows_all_locks_and_fits_the_window() {
    let mut view = view_of(&three());
    common(&mut view).check(&[
        TITLE,
        "Locks 3  Waiting 2  Longest wait >0.0s",
        ORDER,
        TABLE,
        "lock:a                     client 9 disconnected           0     1h02m  no lease",
        "lock:b                     worker-1                        2     12.3s     29.9s",
        "orders:\\u{2...xxx:the-end  10.0.0.4:4000 and 1 more        0      0.0s     1m00s",
        KEYS,
    ]);
    let row = |key: &str, holder: &str, [waiting, held, lease]: [&str; 3]| {
        format!("{key:125}  {holder:44}  {waiting:>7}  {held:>8}  {lease:>8}")
    };
    let long = format!("orders:\\u{{202e}}{}...xxxx:the-end", "x".repeat(95));
    let expected = [
        &format!("{:175}standalone, version 0.1.0", "127.0.0.1:6379"),
        "Locks 3  Waiting 2  Longest wait >0.0s",
        &format!("{:179}State of 12:34:56 UTC", "Sorted by key"),
        &row("Key", "Holder", ["Waiting", "Held for", "Lease"]),
        &row("lock:a", "client 9 disconnected", ["0", "1h02m", "no lease"]),
        &row("lock:b", "worker-1", ["2", "12.3s", "29.9s"]),
        &row(&long, "10.0.0.4:4000 and 1 more", ["0", "0.0s", "1m00s"]),
        KEYS,
    ];
    screen(&mut view, 200, 60).check(&expected);
    screen(&mut view, 40, 10).check(&[
        "127.0.0.1:6379         standalone, 0.1.0",
        "Locks 3  Waiting 2  Longest >0.0s",
        "Sorted by key               12:34:56 UTC",
        "Key        Holder       Waiting    Lease",
        "lock:a     disconnected       0 no lease",
        "lock:b     worker-1           2    29.9s",
        "orde...end 10.0....more       0    1m00s",
        "s sort  / filter  Enter details  q end",
    ]);
    screen(&mut view, 39, 10).check(&["40x10 is the least size", ""]);
    screen(&mut view, 40, 9).check(&["40x10 is the least size", ""]);
}

#[test]
fn missing_lease_and_disconnected_holder_are_emphasized_with_and_without_colors() {
    for has_colors in [true, false] {
        let terminal = terminal_of(&mut view_of(&three()), 80, 24, has_colors);
        let buffer = terminal.backend().buffer();
        let found = |text: &str| {
            let wanted: Vec<String> = text.chars().map(String::from).collect();
            let windows = buffer.content().windows(wanted.len());
            let mut found = windows.filter(|cells| {
                cells.iter().map(|cell| cell.symbol()).eq(wanted.iter().map(String::as_str))
            });
            found.next().expect("the text is shown")[0].clone()
        };
        let color = if has_colors { Color::Red } else { Color::Reset };
        for text in ["no lease", "disconnected"] {
            let cell = found(text);
            assert_eq!((cell.fg, cell.modifier.contains(Modifier::BOLD)), (color, true), "{text}");
        }
        assert!(found("lock:a").modifier.contains(Modifier::REVERSED));
        assert!(!found("lock:b").modifier.contains(Modifier::REVERSED));
        assert!(has_colors || buffer.content().iter().all(|cell| cell.fg == Color::Reset));
    }
}

#[test]
fn lost_connection_is_not_shown_as_no_locks() {
    let mut view = view_of(&three());
    view.lost = Some("Connection refused".to_owned());
    common(&mut view).check(&[
        TITLE,
        "Locks 3  Waiting 2  Longest wait >0.0s",
        ORDER,
        "No connection to the locks: Connection refused. What is shown is the state of",
        "12:34:56 UTC. Reconnecting",
        TABLE,
        "lock:a                     client 9 disconnected           0     1h02m  no lease",
        "lock:b                     worker-1                        2     12.3s     29.9s",
        "orders:\\u{2...xxx:the-end  10.0.0.4:4000 and 1 more        0      0.0s     1m00s",
        KEYS,
    ]);
    let terminal = terminal_of(&mut view, 80, 24, true);
    let row = &terminal.backend().buffer()[(0, 7)];
    assert!(row.symbol() == "l" && row.modifier.contains(Modifier::DIM), "{row:?}");
}

#[test]
fn no_lock_is_held_is_shown_only_with_a_connection() {
    let mut view = view_of(&[]);
    common(&mut view).check(&[TITLE, "Locks 0  Waiting 0", ORDER, TABLE, "No lock is held", KEYS]);
    view.lost = Some("Connection refused".to_owned());
    common(&mut view).check(&[
        TITLE,
        "Locks 0  Waiting 0",
        ORDER,
        "No connection to the locks: Connection refused. What is shown is the state of",
        "12:34:56 UTC. Reconnecting",
        TABLE,
        "It is not known which locks are held",
        KEYS,
    ]);
    view.lost = Some("a very long reason ".repeat(50));
    screen(&mut view, 40, 10).check(&[
        "127.0.0.1:6379         standalone, 0.1.0",
        "Locks 0  Waiting 0",
        "Sorted by key               12:34:56 UTC",
        "No connection to the locks: a very long",
        "reason a very long reason a very long",
        "reason a very long reason a very long",
        "reason a very long reason a very long",
        "Key        Holder       Waiting    Lease",
        "It is not known which locks are held",
        "s sort  / filter  Enter details  q end",
    ]);
    view.update(state(&three()));
    assert_eq!(view.lost, None);
}

#[test]
fn follower_names_its_leader_and_no_waiting_clients() {
    let mut state = state(&three()[..1]);
    state.leader = Some("10.0.0.7:6379".to_owned());
    state.role = "follower, version 0.1.0".to_owned();
    common(&mut View::new("127.0.0.1:6379".to_owned(), state)).check(&[
        "127.0.0.1:6379                                           follower, version 0.1.0",
        "Locks 1",
        ORDER,
        "follower of 10.0.0.7:6379: holders and waiting clients are shown there",
        TABLE,
        "lock:b                     worker-1                        ?     12.3s     29.9s",
        KEYS,
    ]);
}

#[test]
fn keys_sort_and_move_and_the_selected_lock_stays_selected() {
    let lock = |key: &str, age_ms, lease_ms, waiting: usize| {
        let waiters: Vec<Value> = (0..waiting).map(|_| client(1, "", "queued")).collect();
        lock(key, &json!([]), age_ms, lease_ms, &json!(waiters))
    };
    let locks = [lock("a", 1, None, 1), lock("b", 3, Some(9), 0), lock("c", 2, Some(5), 2)];
    let mut view = view_of(&locks);
    assert_eq!(keys(&view), "[a] b c");
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(keys(&view), "[c] b a");
    press(&mut view, KeyCode::Down);
    assert_eq!(keys(&view), "c [b] a");
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(keys(&view), "c a [b]");
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(keys(&view), "[b] c a");
    press(&mut view, KeyCode::Char('s'));
    assert_eq!(keys(&view), "a [b] c");
    press(&mut view, KeyCode::End);
    press(&mut view, KeyCode::Char('j'));
    assert_eq!(keys(&view), "a b [c]");
    view.update(state(&locks[1..]));
    assert_eq!(keys(&view), "b [c]");
    view.update(state(&locks[..1]));
    assert_eq!(keys(&view), "[a]");
    view.update(state(&locks));
    assert_eq!(keys(&view), "[a] b c");
    press(&mut view, KeyCode::Char('j'));
    press(&mut view, KeyCode::Char('k'));
    press(&mut view, KeyCode::Up);
    assert_eq!(keys(&view), "[a] b c");
    let ends =
        |modifiers, char| !view_of(&locks).press(KeyEvent::new(KeyCode::Char(char), modifiers));
    assert!(ends(KeyModifiers::NONE, 'q') && ends(KeyModifiers::CONTROL, 'c'));
    assert!(!ends(KeyModifiers::NONE, 'c'));
}

#[test]
fn many_locks_scroll_by_pages() {
    let locks: Vec<Value> = (0..100).map(|it| plain(&format!("{it:02}"))).collect();
    let mut view = view_of(&locks);
    let visible = |view: &mut View| {
        let terminal = terminal_of(view, 80, 15, true);
        let buffer = terminal.backend().buffer();
        let key = |line: u16| [buffer[(0, line)].symbol(), buffer[(1, line)].symbol()].concat();
        format!("{}-{}", key(4), key(13))
    };
    assert_eq!(visible(&mut view), "00-09");
    for (code, expected) in [
        (KeyCode::PageDown, "01-10"),
        (KeyCode::Home, "00-09"),
        (KeyCode::End, "90-99"),
        (KeyCode::PageUp, "89-98"),
        (KeyCode::Up, "88-97"),
    ] {
        press(&mut view, code);
        assert_eq!(visible(&mut view), expected, "{code:?}");
    }
}

#[test]
fn filter_finds_keys_owners_names_and_addresses() {
    let mut holder = client(7, "Job", "");
    holder["owner"] = json!("owner-1");
    let locks = [
        lock("order:1", &json!([holder]), 1, None, &json!([])),
        lock("stock:1", &json!([client(8, "", "")]), 1, None, &json!([])),
    ];
    let mut view = view_of(&locks);
    for (text, expected) in [
        ("ORDER", "[order:1]"),
        ("10.0.0.8", "[stock:1]"),
        ("job", "[order:1]"),
        ("wner-1", "[order:1]"),
        (":1", "[order:1] stock:1"),
        ("other", ""),
    ] {
        press(&mut view, KeyCode::Char('/'));
        type_text(&mut view, text);
        assert_eq!(keys(&view), expected, "{text}");
        press(&mut view, KeyCode::Esc);
        assert_eq!(keys(&view), "[order:1] stock:1");
    }
    // Letters are text until Enter.
    press(&mut view, KeyCode::Char('/'));
    type_text(&mut view, "stockq");
    press(&mut view, KeyCode::Backspace);
    common(&mut view).check(&[
        TITLE,
        "Locks 1 of 2  Waiting 0",
        "Sorted by key, filter stock                                State of 12:34:56 UTC",
        TABLE,
        "stock:1                    10.0.0.8:4000                   0      0.0s  no lease",
        "Filter: stock_",
    ]);
    press(&mut view, KeyCode::Enter);
    press(&mut view, KeyCode::Char('s'));
    common(&mut view).check(&[
        TITLE,
        "Locks 1 of 2  Waiting 0",
        "Sorted by lease, filter stock                              State of 12:34:56 UTC",
        TABLE,
        "stock:1                    10.0.0.8:4000                   0      0.0s  no lease",
        "Arrows scroll  s sort  / filter  Esc clear  Enter details  q end",
    ]);
    type_text(&mut view, "/x");
    press(&mut view, KeyCode::Enter);
    common(&mut view).check(&[
        TITLE,
        "Locks 0 of 2  Waiting 0",
        "Sorted by lease, filter stockx                             State of 12:34:56 UTC",
        TABLE,
        "No lock matches the filter",
        "Arrows scroll  s sort  / filter  Esc clear  Enter details  q end",
    ]);
}

/// A native lock with its history, as `LOCKWHEEL LOCKS KEY` replies.
fn lock_with_history() -> Value {
    let mut holder = client(1, "worker-1", "");
    holder["owner"] = json!("me");
    holder["token"] = json!(7);
    holder["meta"] = json!("host-7");
    holder["count"] = json!(2);
    let waiters = json!([client(2, "worker-2", "queued"), client(3, "", "refused")]);
    let lock = lock("lock:b", &json!([holder]), 12_300, Some(29_900), &waiters);
    let event = |ago_ms: i64, event: &str, client: u64| {
        json!({"sequence": 1, "at_ms": AT_MS - ago_ms, "event": event, "key": "lock:b",
            "database": 0, "client": client})
    };
    let history = [
        event(20_000, "released", 9),
        event(12_300, "acquired", 1),
        event(2_000, "refused", 3),
        event(1_000, "refused", 3),
    ];
    json!({"sequence": 4, "now_ms": AT_MS, "lock": lock, "history": history})
}

#[test]
fn details_show_grant_queue_and_history() {
    let found = lock_with_history();
    let lock = &found["lock"];
    let details =
        |value: &Value| serde_json::from_value::<Details>(value.clone()).expect("details");

    let mut view = view_of(std::slice::from_ref(lock));
    press(&mut view, KeyCode::Enter);
    common(&mut view).check_body(&["lock:b", "Reading the lock"]);
    let id = view.opened_id().cloned().expect("it is open");
    let mut next = state(std::slice::from_ref(lock));
    next.details = Some((id.clone(), details(&found)));
    view.update(next);
    common(&mut view).check_body(&[
        "lock:b",
        "Lease      29.9s of 29.9s",
        "Held for   12.3s",
        "Renewals   2",
        "Refused    3 in the last minute",
        "Kind       token, likely: its name has a word for a lock",
        "Database   0",
        "Holders",
        "  worker-1, 10.0.0.1:4000, user default, client 1, 2 times",
        "    owner me",
        "    fencing token 7",
        "    META host-7",
        "Waiting, in order: 2",
        "  1. worker-2, 10.0.0.2:4000, user default, client 2, queued",
        "  2. 10.0.0.3:4000, user default, client 3, refused",
        "History, latest first",
        "  12:34:55.000  refused   2 times, the last one by 10.0.0.3:4000",
        "  12:34:43.700  acquired  worker-1",
        "  12:34:36.000  released  client 9",
    ]);
    press(&mut view, KeyCode::End);
    screen(&mut view, 40, 10).check_body(&[
        "client 3, refused",
        "History, latest first",
        "  12:34:55.000  refused   2 times, the",
        "last one by 10.0.0.3:4000",
        "  12:34:43.700  acquired  worker-1",
        "  12:34:36.000  released  client 9",
    ]);
    let mut next = state(&[]);
    next.details = Some((id, details(&json!({"now_ms": AT_MS, "lock": null, "history": []}))));
    view.update(next);
    common(&mut view).check_body(&[
        "lock:b",
        "This lock is not held now.",
        "History, latest first",
    ]);
    press(&mut view, KeyCode::Esc);
    common(&mut view).check_body(&[TABLE, "No lock is held"]);
}

#[test]
fn longest_wait_counts_from_when_the_client_was_first_seen() {
    let lock = |waiters: &Value| lock("a", &json!([]), 1, None, waiters);
    let at = |ms: i64, waiters: &Value| State { now_ms: AT_MS + ms, ..state(&[lock(waiters)]) };
    let [first, second] = [2, 3].map(|id| client(id, "", "queued"));
    let mut view = View::new(String::new(), at(0, &json!([first])));
    assert_eq!(view.waiting(), (1, Some((0, true))));
    view.update(at(3000, &json!([first, second])));
    assert_eq!(view.waiting(), (2, Some((3000, true))));
    view.update(at(5000, &json!([second])));
    assert_eq!(view.waiting(), (1, Some((2000, false))));
    view.update(at(6000, &json!([])));
    assert_eq!(view.waiting(), (0, None));
}
