//! Blocked clients: each element goes to one of them, in the order in which they blocked, and none
//! is left blocked while there are elements.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use super::arena::{Arena, ArenaClient, PropertyError};
use super::property::Property;
use crate::random::Random;
use crate::report::Question;
use crate::time;
use crate::wire::frame::Frame;

const LOST: &str = "Libraries wait in a blocking pop for an element: a client that gets none \
waits for ever, and two clients that get the same one hold one lock.";

/// The properties.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "With many clients in BLPOP each element goes to one, and none stays blocked",
        client: None,
        question: Question::Missed,
        why: LOST,
        run: |arena| each_once(arena, BlockingPop::Blpop),
    },
    Property {
        name: "With many clients in BLMOVE each element goes to one, and none stays blocked",
        client: None,
        question: Question::Missed,
        why: LOST,
        run: |arena| each_once(arena, BlockingPop::Blmove),
    },
    Property {
        name: "With many clients in BZPOPMIN each member goes to one, and none stays blocked",
        client: None,
        question: Question::Missed,
        why: LOST,
        run: |arena| each_once(arena, BlockingPop::Bzpopmin),
    },
    Property {
        name: "Blocked clients are served in order, and closed connections are skipped",
        client: None,
        question: Question::Missed,
        why: "A lock that is passed to a closed connection is neither held nor free.",
        run: served_in_order,
    },
];

/// How long a blocked client waits before it checks whether there are elements.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
const SERVED_MIN: usize = 20;
/// The prefix of the elements that end a waiter.
const STOP: &str = "stop";

#[derive(Clone, Copy)]
enum BlockingPop {
    Blpop,
    Blmove,
    Bzpopmin,
}

/// The counters that pushing and waiting clients share.
struct Counters {
    pushed: AtomicI64,
    served: AtomicI64,
    pushers: AtomicUsize,
    waiters: usize,
}

fn each_once(arena: &Arena<'_>, command: BlockingPop) -> Result<(), PropertyError> {
    let key = arena.key("queue");
    let pushers = (arena.connections / 8).max(1);
    let waiters = arena.connections.saturating_sub(pushers).max(2);
    let counters = Counters {
        pushed: AtomicI64::new(0),
        served: AtomicI64::new(0),
        pushers: AtomicUsize::new(pushers),
        waiters,
    };
    let results = arena.run_clients(pushers + waiters, |number, client| {
        if number < pushers {
            let mut random = arena.random(number);
            let pushed = push(arena, client, command, &key, (number, &mut random), &counters)?;
            return Ok((pushed, Vec::new()));
        }
        Ok((Vec::new(), wait(arena, client, command, &key, number, &counters)?))
    })?;
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for element in results.iter().flat_map(|(_, served)| served) {
        *taken.entry(element).or_default() += 1;
    }
    if let Some((element, count)) = taken.iter().find(|(_, count)| **count > 1) {
        let came = format!("{element} went to {count} waiters");
        return Err(PropertyError::violated("each element goes to one waiter", &came, Vec::new()));
    }
    let pushed: Vec<&String> = results.iter().flat_map(|(pushed, _)| pushed).collect();
    if let Some(lost) = pushed.iter().find(|element| !taken.contains_key(element.as_str())) {
        let came = format!("{lost} was pushed, and no waiter got it");
        return Err(PropertyError::violated("each element goes to a waiter", &came, Vec::new()));
    }
    if taken.len() != pushed.len() {
        let came = format!("{} were received, {} pushed", taken.len(), pushed.len());
        return Err(PropertyError::violated(
            "only pushed elements are received",
            &came,
            Vec::new(),
        ));
    }
    PropertyError::unknown_unless(pushed.len() >= SERVED_MIN, || {
        format!("{} elements are too few", pushed.len())
    })
}

/// Pushes elements until the time is over; the last pusher then ends all waiters.
fn push(
    arena: &Arena<'_>,
    client: &mut ArenaClient,
    command: BlockingPop,
    key: &str,
    (number, random): (usize, &mut Random),
    counters: &Counters,
) -> Result<Vec<String>, PropertyError> {
    let mut pushed = Vec::new();
    while !arena.is_over() {
        let ahead =
            counters.pushed.load(Ordering::Relaxed) - counters.served.load(Ordering::Relaxed);
        if usize::try_from(ahead).is_ok_and(|ahead| ahead >= counters.waiters) {
            time::sleep(Duration::from_micros(50));
            continue;
        }
        let count = if random.once_in(2) { 1 } else { random.between(1, 3) };
        let first = pushed.len();
        let elements = (0..count).zip(first..).map(|(_, at)| format!("e{number}.{at}"));
        let elements: Vec<String> = elements.collect();
        let words = command.push(key, &elements);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Counted before the push, so that no waiter gets an element that is not counted yet.
        counters.pushed.fetch_add(count, Ordering::SeqCst);
        match random.below(3) {
            0 => drop(client.pipeline(&[&["MULTI"], &words, &["EXEC"]])?),
            1 => {
                let script = "return redis.call(unpack(ARGV))";
                client.call(&[&["EVAL", script, "1", key], &words[..]].concat())?;
            }
            _ => drop(client.call(&words)?),
        }
        pushed.extend(elements);
    }
    if counters.pushers.fetch_sub(1, Ordering::SeqCst) == 1 {
        let stops: Vec<_> = (0..counters.waiters).map(|number| format!("{STOP}{number}")).collect();
        let words = command.push(key, &stops);
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(pushed)
}

/// Takes elements until a stop element comes.
fn wait(
    arena: &Arena<'_>,
    client: &mut ArenaClient,
    command: BlockingPop,
    key: &str,
    number: usize,
    counters: &Counters,
) -> Result<Vec<String>, PropertyError> {
    let own = format!("{key}:{number}");
    let mut served: Vec<String> = Vec::new();
    loop {
        client.send(&match command {
            BlockingPop::Blpop => vec!["BLPOP", key, "0"],
            BlockingPop::Blmove => vec!["BLMOVE", key, &own, "LEFT", "RIGHT", "0"],
            BlockingPop::Bzpopmin => vec!["BZPOPMIN", key, "0"],
        })?;
        let reply = served_within(arena, client, command, key, counters)?;
        let element = match command {
            BlockingPop::Blpop | BlockingPop::Bzpopmin => {
                reply.items.get(1).and_then(Frame::as_text)
            }
            BlockingPop::Blmove => reply.as_text(),
        };
        let Some(element) = element else {
            return Err(PropertyError::violated("an element", &reply.notation(), Vec::new()));
        };
        if element.starts_with(STOP) {
            break;
        }
        served.push(element);
        let all_served = counters.served.fetch_add(1, Ordering::SeqCst) + 1;
        let all_pushed = counters.pushed.load(Ordering::SeqCst);
        if all_served > all_pushed {
            // A server that returns elements without removing them would go on for ever.
            let came = format!("{all_served} were received, {all_pushed} pushed");
            return Err(PropertyError::violated(
                "only pushed elements are received",
                &came,
                Vec::new(),
            ));
        }
    }
    if matches!(command, BlockingPop::Blmove) {
        let moved = client.call(&["LRANGE", &own, "0", "-2"])?;
        if !moved.items.iter().filter_map(Frame::as_text).eq(served.iter().cloned()) {
            let expected = format!("the received elements were moved: {}", served.join(" "));
            return Err(PropertyError::violated(&expected, &moved.notation(), Vec::new()));
        }
    }
    Ok(served)
}

/// The reply to a blocked client. If none comes in time, there must be no elements.
fn served_within(
    arena: &Arena<'_>,
    client: &mut ArenaClient,
    command: BlockingPop,
    key: &str,
    counters: &Counters,
) -> Result<Frame, PropertyError> {
    loop {
        if let Some(reply) = client.read_within(REPLY_TIMEOUT)? {
            return Ok(reply);
        }
        let all_pushed = counters.pushers.load(Ordering::SeqCst) == 0;
        let count = arena.connect()?.integer(&[command.count(), key])?;
        // It may have come in the meantime.
        if let Some(reply) = client.read_within(REPLY_TIMEOUT / 10)? {
            return Ok(reply);
        }
        let story =
            vec![format!("a waits in {command}"), format!("b> {}: {count}", command.count())];
        if count > 0 {
            let expected = "a blocked client gets an element while there are some";
            return Err(PropertyError::violated(expected, "it still waits", story));
        }
        if all_pushed {
            let expected = "there is an element for each blocked client";
            return Err(PropertyError::violated(expected, "an element was lost", story));
        }
    }
}

impl std::fmt::Display for BlockingPop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BlockingPop::Blpop => "BLPOP",
            BlockingPop::Blmove => "BLMOVE",
            BlockingPop::Bzpopmin => "BZPOPMIN",
        })
    }
}

impl BlockingPop {
    fn push(self, key: &str, elements: &[String]) -> Vec<String> {
        let is_set = matches!(self, BlockingPop::Bzpopmin);
        let mut words = vec![if is_set { "ZADD" } else { "RPUSH" }.to_owned(), key.to_owned()];
        for element in elements {
            if is_set {
                // The stop elements come last.
                words.push(if element.starts_with(STOP) { "2" } else { "1" }.to_owned());
            }
            words.push(element.clone());
        }
        words
    }

    fn count(self) -> &'static str {
        if matches!(self, BlockingPop::Bzpopmin) { "ZCARD" } else { "LLEN" }
    }
}

/// Checks the order of service: clients block one after the other; some are closed, and the server
/// has noticed; then as many elements are pushed as clients are left.
fn served_in_order(arena: &Arena<'_>) -> Result<(), PropertyError> {
    let served = arena.run_clients((arena.connections / 4).clamp(1, 4), |number, control| {
        let mut random = arena.random(number);
        let key = arena.key(&format!("queue-{number}"));
        let mut served = 0;
        let mut waiters = Vec::new();
        while !arena.is_over() {
            while waiters.len() < 5 {
                let mut waiter = arena.connect()?;
                let id = waiter.integer(&["CLIENT", "ID"])?;
                waiters.push((id, waiter));
            }
            served += one_queue(control, &mut waiters, &key, &mut random)?;
        }
        Ok(served)
    })?;
    let served: usize = served.iter().sum();
    PropertyError::unknown_unless(served >= SERVED_MIN, || format!("{served} elements are too few"))
}

fn one_queue(
    control: &mut ArenaClient,
    waiters: &mut Vec<(i64, ArenaClient)>,
    key: &str,
    random: &mut Random,
) -> Result<usize, PropertyError> {
    let mut story = Vec::new();
    for (id, waiter) in waiters.iter_mut() {
        waiter.send(&["BLPOP", key, "0"])?;
        until(control, *id, |flags| flags.is_some_and(|flags| flags.contains('b')))?;
        story.push(format!("{id}> BLPOP queue 0"));
    }
    if random.once_in(3) {
        let place = random.below(waiters.len() as u64) as usize;
        let (id, waiter) = waiters.remove(place);
        drop(waiter);
        until(control, id, |flags| flags.is_none())?;
        story.push(format!("{id} is closed, and the server has noticed"));
    }
    let elements: Vec<String> = (0..waiters.len()).map(|number| format!("e{number}")).collect();
    let at_once = random.once_in(2);
    for part in elements.chunks(if at_once { elements.len() } else { 1 }) {
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        control.call(&[&["RPUSH", key], &part[..]].concat())?;
        story.push(format!("b> RPUSH queue {}", part.join(" ")));
    }
    for ((id, waiter), element) in waiters.iter_mut().zip(&elements) {
        let reply = waiter.read_within(REPLY_TIMEOUT)?;
        let came = reply.as_ref().map_or("nothing".to_owned(), Frame::notation);
        story.push(format!("{id}< {came}"));
        let got = reply.and_then(|reply| reply.items.get(1).and_then(Frame::as_text));
        if got.as_deref() != Some(element) {
            let expected = format!("client {id} gets {element}: it is next");
            return Err(PropertyError::violated(&expected, &came, story));
        }
    }
    Ok(elements.len())
}

/// Waits until CLIENT LIST shows flags of the client that satisfy `is_so`; `None` if the client is
/// not listed.
fn until(
    control: &mut ArenaClient,
    id: i64,
    is_so: impl Fn(Option<&str>) -> bool,
) -> Result<(), PropertyError> {
    let begun_us = time::now_us();
    let start = format!("id={id} ");
    loop {
        let list = control.text(&["CLIENT", "LIST"])?.unwrap_or_default();
        let line = list.lines().find(|line| line.starts_with(&start));
        let flags = line.map(|line| {
            line.split(' ').find_map(|word| word.strip_prefix("flags=")).unwrap_or_default()
        });
        if is_so(flags) {
            return Ok(());
        }
        let timeout_us = i64::try_from(REPLY_TIMEOUT.as_micros()).unwrap_or(i64::MAX);
        if time::now_us() - begun_us > timeout_us {
            return Err(PropertyError::unknown(
                "CLIENT LIST does not show which clients are blocked",
            ));
        }
    }
}
