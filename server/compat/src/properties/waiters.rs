//! Those who wait for an element: each element goes to one of them, in the order in which they
//! came, and nobody is forgotten.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use super::super::frame::Frame;
use super::super::random::Random;
use super::super::time;
use super::arena::text;
use super::{Arena, Client, Property, Trouble};

const LOST: &str = "Libraries that wait by a blocking pop sleep until they are served: one that is \
                    forgotten waits for ever, two that are served hold one lock.";

/// What is tried.
pub(super) const PROPERTIES: &[Property] = &[
    Property {
        name: "Of those who wait in BLPOP, each element goes to one, and nobody is forgotten",
        client: None,
        why: LOST,
        run: |arena| each_once(arena, Means::Blpop),
    },
    Property {
        name: "Of those who wait in BLMOVE, each element goes to one, and nobody is forgotten",
        client: None,
        why: LOST,
        run: |arena| each_once(arena, Means::Blmove),
    },
    Property {
        name: "Of those who wait in BZPOPMIN, each member goes to one, and nobody is forgotten",
        client: None,
        why: LOST,
        run: |arena| each_once(arena, Means::Bzpopmin),
    },
    Property {
        name: "Who waits first is served first, and the dead are passed over",
        client: None,
        why: "A lock that is handed to a client that has gone is held by nobody and free to \
              nobody.",
        run: in_their_order,
    },
];

/// How long a waiter waits before it looks whether there is something for it.
const PATIENCE: Duration = Duration::from_secs(10);
const SERVED_MIN: usize = 20;
/// After this one a waiter goes home.
const STOP: &str = "stop";

#[derive(Clone, Copy)]
enum Means {
    Blpop,
    Blmove,
    Bzpopmin,
}

/// What pushers and waiters know of each other.
struct Ledger {
    pushed: AtomicI64,
    served: AtomicI64,
    pushers: AtomicUsize,
    waiters: usize,
}

fn each_once(arena: &Arena<'_>, means: Means) -> Result<(), Trouble> {
    let key = arena.key("queue");
    let pushers = (arena.connections / 8).max(1);
    let waiters = arena.connections.saturating_sub(pushers).max(2);
    let ledger = Ledger {
        pushed: AtomicI64::new(0),
        served: AtomicI64::new(0),
        pushers: AtomicUsize::new(pushers),
        waiters,
    };
    let results = arena.crowd(pushers + waiters, |number, client| {
        if number < pushers {
            let mut random = arena.random(number);
            let pushed = push(arena, client, means, &key, (number, &mut random), &ledger)?;
            return Ok((pushed, Vec::new()));
        }
        Ok((Vec::new(), wait(arena, client, means, &key, number, &ledger)?))
    })?;
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for element in results.iter().flat_map(|(_, served)| served) {
        *taken.entry(element).or_default() += 1;
    }
    if let Some((element, count)) = taken.iter().find(|(_, count)| **count > 1) {
        let came = format!("{element} went to {count} waiters");
        return Err(Trouble::broken("each element goes to one waiter", &came, Vec::new()));
    }
    let pushed: Vec<&String> = results.iter().flat_map(|(pushed, _)| pushed).collect();
    if let Some(lost) = pushed.iter().find(|element| !taken.contains_key(element.as_str())) {
        let came = format!("{lost} was pushed, and went to nobody");
        return Err(Trouble::broken("each element goes to a waiter", &came, Vec::new()));
    }
    if taken.len() != pushed.len() {
        let came = format!("{} were served, {} pushed", taken.len(), pushed.len());
        return Err(Trouble::broken("only what was pushed is served", &came, Vec::new()));
    }
    if pushed.len() < SERVED_MIN {
        return Err(Trouble::unknown(format!("{} elements are too few", pushed.len())));
    }
    Ok(())
}

/// Pushes elements while there are some who wait; the last pusher sends all waiters home.
fn push(
    arena: &Arena<'_>,
    client: &mut Client,
    means: Means,
    key: &str,
    (number, random): (usize, &mut Random),
    ledger: &Ledger,
) -> Result<Vec<String>, Trouble> {
    let mut pushed = Vec::new();
    while !arena.is_over() {
        let ahead = ledger.pushed.load(Ordering::Relaxed) - ledger.served.load(Ordering::Relaxed);
        if usize::try_from(ahead).is_ok_and(|ahead| ahead >= ledger.waiters) {
            time::sleep(Duration::from_micros(50));
            continue;
        }
        let count = if random.once_in(2) { 1 } else { random.between(1, 3) };
        let first = pushed.len();
        let elements = (0..count).zip(first..).map(|(_, at)| format!("e{number}.{at}"));
        let elements: Vec<String> = elements.collect();
        let words = means.push(key, &elements);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Before they are: nobody may have been served what is not counted yet.
        ledger.pushed.fetch_add(count, Ordering::SeqCst);
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
    if ledger.pushers.fetch_sub(1, Ordering::SeqCst) == 1 {
        let stops: Vec<_> = (0..ledger.waiters).map(|number| format!("{STOP}{number}")).collect();
        let words = means.push(key, &stops);
        client.call(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    }
    Ok(pushed)
}

/// Takes elements until it is sent home.
fn wait(
    arena: &Arena<'_>,
    client: &mut Client,
    means: Means,
    key: &str,
    number: usize,
    ledger: &Ledger,
) -> Result<Vec<String>, Trouble> {
    let own = format!("{key}:{number}");
    let mut served: Vec<String> = Vec::new();
    loop {
        client.send(&match means {
            Means::Blpop => vec!["BLPOP", key, "0"],
            Means::Blmove => vec!["BLMOVE", key, &own, "LEFT", "RIGHT", "0"],
            Means::Bzpopmin => vec!["BZPOPMIN", key, "0"],
        })?;
        let reply = served_within(arena, client, means, key, ledger)?;
        let element = match means {
            Means::Blpop | Means::Bzpopmin => reply.items.get(1).and_then(text),
            Means::Blmove => text(&reply),
        };
        let Some(element) = element else {
            return Err(Trouble::broken("an element", &reply.notation(), Vec::new()));
        };
        if element.starts_with(STOP) {
            break;
        }
        served.push(element);
        let all_served = ledger.served.fetch_add(1, Ordering::SeqCst) + 1;
        let all_pushed = ledger.pushed.load(Ordering::SeqCst);
        if all_served > all_pushed {
            // Who gives and does not take away would go on for ever.
            let came = format!("{all_served} were served, {all_pushed} pushed");
            return Err(Trouble::broken("only what was pushed is served", &came, Vec::new()));
        }
    }
    if matches!(means, Means::Blmove) {
        let moved = client.call(&["LRANGE", &own, "0", "-2"])?;
        if !moved.items.iter().filter_map(text).eq(served.iter().cloned()) {
            let expected = format!("what it was given was moved: {}", served.join(" "));
            return Err(Trouble::broken(&expected, &moved.notation(), Vec::new()));
        }
    }
    Ok(served)
}

/// What comes for a waiter. If nothing comes for long, there must be nothing for it.
fn served_within(
    arena: &Arena<'_>,
    client: &mut Client,
    means: Means,
    key: &str,
    ledger: &Ledger,
) -> Result<Frame, Trouble> {
    loop {
        if let Some(reply) = client.hear(PATIENCE)? {
            return Ok(reply);
        }
        let all_pushed = ledger.pushers.load(Ordering::SeqCst) == 0;
        let count = arena.connect()?.integer(&[means.count(), key])?;
        // It may have come just now.
        if let Some(reply) = client.hear(PATIENCE / 10)? {
            return Ok(reply);
        }
        let story = vec![format!("a waits in {means}"), format!("b> {}: {count}", means.count())];
        if count > 0 {
            let expected = "who waits is served while there are elements";
            return Err(Trouble::broken(expected, "it still waits", story));
        }
        if all_pushed {
            let expected = "there is an element for each who waits";
            return Err(Trouble::broken(expected, "one went to nobody", story));
        }
    }
}

impl std::fmt::Display for Means {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Means::Blpop => "BLPOP",
            Means::Blmove => "BLMOVE",
            Means::Bzpopmin => "BZPOPMIN",
        })
    }
}

impl Means {
    fn push(self, key: &str, elements: &[String]) -> Vec<String> {
        let is_set = matches!(self, Means::Bzpopmin);
        let mut words = vec![if is_set { "ZADD" } else { "RPUSH" }.to_owned(), key.to_owned()];
        for element in elements {
            if is_set {
                // Whoever is sent home is sent home last.
                words.push(if element.starts_with(STOP) { "2" } else { "1" }.to_owned());
            }
            words.push(element.clone());
        }
        words
    }

    fn count(self) -> &'static str {
        if matches!(self, Means::Bzpopmin) { "ZCARD" } else { "LLEN" }
    }
}

/// Some wait, one known to come after the other; some of them die, and the server knows; then
/// there are as many elements as are alive.
fn in_their_order(arena: &Arena<'_>) -> Result<(), Trouble> {
    let served = arena.crowd((arena.connections / 4).clamp(1, 4), |number, control| {
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
    match served.iter().sum::<usize>() {
        served if served < SERVED_MIN => {
            Err(Trouble::unknown(format!("{served} were served, which is too few")))
        }
        _ => Ok(()),
    }
}

fn one_queue(
    control: &mut Client,
    waiters: &mut Vec<(i64, Client)>,
    key: &str,
    random: &mut Random,
) -> Result<usize, Trouble> {
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
        story.push(format!("{id} has gone, and the server knows"));
    }
    let elements: Vec<String> = (0..waiters.len()).map(|number| format!("e{number}")).collect();
    let at_once = random.once_in(2);
    for part in elements.chunks(if at_once { elements.len() } else { 1 }) {
        let part: Vec<&str> = part.iter().map(String::as_str).collect();
        control.call(&[&["RPUSH", key], &part[..]].concat())?;
        story.push(format!("b> RPUSH queue {}", part.join(" ")));
    }
    for ((id, waiter), element) in waiters.iter_mut().zip(&elements) {
        let reply = waiter.hear(PATIENCE)?;
        let told = reply.as_ref().map_or("nothing".to_owned(), Frame::notation);
        story.push(format!("{id}< {told}"));
        let got = reply.and_then(|reply| reply.items.get(1).and_then(text));
        if got.as_deref() != Some(element) {
            let expected = format!("client {id} gets {element}: its turn");
            return Err(Trouble::broken(&expected, &told, story));
        }
    }
    Ok(elements.len())
}

/// Waits until CLIENT LIST says so of the client; of its flags, if it is there.
fn until(
    control: &mut Client,
    id: i64,
    is_so: impl Fn(Option<&str>) -> bool,
) -> Result<(), Trouble> {
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
        let patience_us = i64::try_from(PATIENCE.as_micros()).unwrap_or(i64::MAX);
        if time::now_us() - begun_us > patience_us {
            return Err(Trouble::unknown("CLIENT LIST does not tell who waits"));
        }
    }
}
