//! WATCH: EXEC fails after any change of a watched key, so that no update is lost.

use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::report::Question;
use crate::time;
use crate::wire::frame::Frame;

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "WATCH, GET, MULTI, SET, EXEC loses no update",
        client: None,
        question: Question::HeldTwice,
        why: "A lock that is read and then taken is granted twice if EXEC does not detect \
              that another client was faster.",
        run: no_update_lost,
    },
    Property {
        name: "EXEC detects every change since WATCH, even after MULTI",
        client: None,
        question: Question::ReleasedByOthers,
        why: "The earlier holder must not release or renew a lock that expired, was deleted or \
              changed its holder after it was read.",
        run: every_change_noticed,
    },
];

fn no_update_lost(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let key = arena.key("count");
    arena.connect()?.call(&["SET", &key, "0"])?;
    let done = arena.run_clients(arena.connections, |_, client| {
        let mut done = (0_i64, 0_i64);
        while !arena.is_over() {
            let replies = client.pipeline(&[&["WATCH", &key], &["GET", &key]])?;
            let count =
                replies.last().and_then(Frame::as_text).and_then(|text| text.parse::<i64>().ok());
            let count =
                count.ok_or_else(|| PropertyError::unknown("the count is not a number"))? + 1;
            let set: &[&str] = &["SET", &key, &count.to_string()];
            let replies = client.pipeline(&[&["MULTI"], set, &["EXEC"]])?;
            let executed = replies.last().is_some_and(|reply| !reply.items.is_empty());
            done.0 += i64::from(executed);
            done.1 += i64::from(!executed);
        }
        Ok(done)
    })?;
    let executed_count: i64 = done.iter().map(|(executed_count, _)| executed_count).sum();
    let refused: i64 = done.iter().map(|(_, refused)| refused).sum();
    let count = arena.connect()?.integer(&["GET", &key])?;
    if count != executed_count {
        let expected = format!("{executed_count}: the number of successful EXECs");
        return Err(PropertyError::violated(&expected, &count.to_string(), Vec::new()));
    }
    PropertyError::unknown_unless(executed_count >= 10 && refused > 0, || {
        format!("{executed_count} updates and {refused} collisions are too few")
    })
}

/// A change of a key: the command that creates the key, and the commands of another client.
type Change = (&'static [&'static str], &'static [&'static [&'static str]]);

const CHANGES: &[Change] = &[
    (&["SET", "<k>", "v"], &[&["SET", "<k>", "w"]]),
    (&["SET", "<k>", "v"], &[&["SET", "<k>", "v"]]),
    (&["SET", "<k>", "v"], &[&["DEL", "<k>"]]),
    (&["SET", "<k>", "v"], &[&["DEL", "<k>"], &["SET", "<k>", "v"]]),
    (&["SET", "<k>", "v"], &[&["PEXPIRE", "<k>", "60000"]]),
    (&["SET", "<k>", "v"], &[&["PEXPIRE", "<k>", "0"]]),
    (&["SET", "<k>", "v"], &[&["APPEND", "<k>", "w"]]),
    (&["SET", "<k>", "v"], &[&["RENAME", "<k>", "<k>:other"]]),
    (&["SET", "<k>", "v"], &[&["MULTI"], &["SET", "<k>", "w"], &["EXEC"]]),
    (&["SET", "<k>", "v"], &[&["EVAL", "return redis.call('del', KEYS[1])", "1", "<k>"]]),
    (&["HSET", "<k>", "owner", "1"], &[&["HINCRBY", "<k>", "owner", "1"]]),
    (&["HSET", "<k>", "owner", "1"], &[&["HDEL", "<k>", "owner"]]),
    (&["RPUSH", "<k>", "v"], &[&["LPOP", "<k>"]]),
    (&["DEL", "<k>"], &[&["SET", "<k>", "v", "NX", "PX", "60000"]]),
    (&["DEL", "<k>"], &[&["HSET", "<k>", "owner", "1"]]),
    (&["DEL", "<k>"], &[&["SET", "<k>", "v"], &["DEL", "<k>"]]),
    // No command: the lease ends.
    (&["SET", "<k>", "v", "PX", "20"], &[]),
    // No command, and no change.
    (&["SET", "<k>", "v", "PX", "600000"], &[]),
];

/// The time of the change.
#[derive(Clone, Copy)]
enum When {
    BeforeMulti,
    InMulti,
    BeforeExec,
}

fn every_change_noticed(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let tried = arena.run_clients(arena.connections.min(8), |number, watcher| {
        let mut random = arena.random(number);
        let mut other = arena.connect()?;
        let key = arena.key(&format!("watched-{number}"));
        let renamed = format!("{key}:other");
        let mut tried = 0;
        while !arena.is_over() {
            let when = *random.pick(&[When::BeforeMulti, When::InMulti, When::BeforeExec]);
            let change = random.pick(CHANGES);
            tried += i64::from(exec_notices_change(
                watcher,
                &mut other,
                [&key, &renamed],
                change,
                when,
            )?);
        }
        Ok(tried)
    })?;
    let tried: i64 = tried.iter().sum();
    PropertyError::unknown_unless(tried >= 20, || format!("{tried} changes are too few"))
}

/// Watches a key, changes it from another connection, and checks EXEC. Returns whether the change
/// could be tried.
fn exec_notices_change(
    watcher: &mut ArenaClient,
    other: &mut ArenaClient,
    names: [&str; 2],
    change: &Change,
    when: When,
) -> Result<bool, PropertyError> {
    let with_key = |words: &[&'static str]| -> Vec<&str> {
        let name = |word: &&'static str| match *word {
            "<k>" => names[0],
            "<k>:other" => names[1],
            word => word,
        };
        words.iter().map(name).collect()
    };
    let key = names[0];
    other.call(&["DEL", key, names[1]])?;
    let before = with_key(change.0);
    let replies = watcher.pipeline(&[&before, &["WATCH", key], &["EXISTS", key]])?;
    let existed = replies.last().is_some_and(|reply| reply.text == b"1");
    if !existed && change.0[0] != "DEL" {
        // The lease ended before WATCH.
        watcher.call(&["UNWATCH"])?;
        return Ok(false);
    }
    let mut story = vec![format!("a> {}", before.join(" ")), format!("a> WATCH {key}")];
    let mut happens = |story: &mut Vec<String>, now: bool| -> Result<(), PropertyError> {
        if !now {
            return Ok(());
        }
        for words in change.1 {
            other.call(&with_key(words))?;
            story.push(format!("b> {}", with_key(words).join(" ")));
        }
        while change.0.contains(&"20") && other.integer(&["EXISTS", key])? == 1 {
            time::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    happens(&mut story, matches!(when, When::BeforeMulti))?;
    watcher.call(&["MULTI"])?;
    story.push("a> MULTI".to_owned());
    happens(&mut story, matches!(when, When::InMulti))?;
    watcher.call(&["SET", key, "mine"])?;
    story.push(format!("a> SET {key} mine"));
    happens(&mut story, matches!(when, When::BeforeExec))?;
    let reply = watcher.call(&["EXEC"])?;
    story.push(format!("a> EXEC: {}", reply.notation()));
    let unchanged = change.1.is_empty() && !change.0.contains(&"20");
    if unchanged && reply.items.is_empty() {
        let expected = "EXEC runs: the key was not changed";
        return Err(PropertyError::violated(expected, &reply.notation(), story));
    }
    if !unchanged && !reply.items.is_empty() {
        let expected = "EXEC replies nil: the key was changed after WATCH";
        return Err(PropertyError::violated(expected, &reply.notation(), story));
    }
    Ok(true)
}
