//! Random requests for native locks in several databases, which are swapped, compared with a simple
//! model of locks and queues.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lockwheel_resp::Reply;
use proptest::prelude::*;
use serde_json::Value;

use crate::settings::Settings;
use crate::testing::{Stage, render, words};

const DATABASES: usize = 3;
const KEYS: usize = 2;
const CLIENTS: usize = 5;

/// One step of a client. Leases and advances of the clock are even numbers of milliseconds, and
/// waits odd ones, so that a wait never ends with a lease.
#[derive(Clone, Debug)]
struct Step {
    client: usize,
    key: usize,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Select {
        database: usize,
    },
    Acquire {
        lease_ms: i64,
        wait_ms: Option<i64>,
        is_bound: bool,
        is_shared: bool,
    },
    /// An owner that holds the lock acquires it again.
    AcquireAgain {
        lease_ms: i64,
    },
    Renew {
        lease_ms: i64,
    },
    Release,
    /// Asks of every token whether its grant counts.
    Validate,
    Force,
    Move {
        database: usize,
    },
    Swap {
        one: usize,
        other: usize,
    },
    /// The connection ends, and the client connects again.
    Disconnect,
    /// Memory or the disk of the log is full from now on, or has space.
    Fill {
        memory_is_full: bool,
        disk_is_full: bool,
    },
    Advance {
        span_ms: i64,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let database = || 0..DATABASES;
    let even = || (1..20_i64).prop_map(|half| half * 2);
    let wait = prop_oneof![1 => Just(None), 2 => (1..30_i64).prop_map(|half| Some(half * 2 + 1))];
    let action = prop_oneof![
        3 => database().prop_map(|database| Action::Select { database }),
        12 => (even(), wait, prop::bool::weighted(0.5), prop::bool::weighted(0.4)).prop_map(
            |(lease_ms, wait_ms, is_bound, is_shared)| {
                Action::Acquire { lease_ms, wait_ms, is_bound, is_shared }
            }
        ),
        2 => even().prop_map(|lease_ms| Action::AcquireAgain { lease_ms }),
        2 => even().prop_map(|lease_ms| Action::Renew { lease_ms }),
        3 => Just(Action::Release),
        2 => Just(Action::Validate),
        1 => Just(Action::Force),
        1 => database().prop_map(|database| Action::Move { database }),
        4 => (database(), database()).prop_map(|(one, other)| Action::Swap { one, other }),
        3 => Just(Action::Disconnect),
        3 => (prop::bool::weighted(0.3), prop::bool::weighted(0.3)).prop_map(
            |(memory_is_full, disk_is_full)| Action::Fill { memory_is_full, disk_is_full }
        ),
        5 => even().prop_map(|span_ms| Action::Advance { span_ms: span_ms / 4 * 2 }),
    ];
    (0..CLIENTS, 0..KEYS, action).prop_map(|(client, key, action)| Step { client, key, action })
}

/// A database and a key.
type Place = (usize, usize);

/// What an owner holds. Each acquisition without another one has an owner of its own.
#[derive(Clone, Debug)]
struct Hold {
    owner: u32,
    count: i64,
    end_ms: i64,
    /// The client to whose connection it is bound.
    bound_to: Option<usize>,
    is_shared: bool,
}

#[derive(Clone, Debug)]
struct Waiter {
    client: usize,
    owner: u32,
    lease_ms: i64,
    end_ms: i64,
    is_bound: bool,
    is_shared: bool,
}

/// The locks and queues. A lock moves when its database is swapped, and a queue does not.
#[derive(Default)]
struct Model {
    now_ms: i64,
    selected: [usize; CLIENTS],
    /// The holds of each lock that is held.
    holds: BTreeMap<Place, Vec<Hold>>,
    queues: BTreeMap<Place, VecDeque<Waiter>>,
    /// What is refused gets this error.
    refusal: Option<&'static str>,
    /// What blocked clients receive, and the owner that is granted the lock with it.
    received: Vec<(usize, Option<u32>, String)>,
}

impl Model {
    fn is_blocked(&self, client: usize) -> bool {
        self.queues.values().flatten().any(|waiter| waiter.client == client)
    }

    /// Whether the lock can be granted to another owner, if no client waits for it.
    fn admits(&self, place: Place, is_shared: bool) -> bool {
        self.holds.get(&place).is_none_or(|holds| is_shared && holds.iter().all(|it| it.is_shared))
    }

    /// Keeps these holds.
    fn retain_holds(&mut self, is_kept: impl Fn(&Hold) -> bool) {
        self.holds.values_mut().for_each(|holds| holds.retain(&is_kept));
        self.holds.retain(|_, holds| !holds.is_empty());
    }

    /// Grants each lock to the first clients in its queue, as far as it admits them.
    fn serve(&mut self) {
        let mut queues = std::mem::take(&mut self.queues);
        for (place, queue) in &mut queues {
            while queue.front().is_some_and(|first| self.admits(*place, first.is_shared)) {
                let Some(first) = queue.pop_front() else { continue };
                let Waiter { client, owner, lease_ms, is_bound, is_shared, .. } = first;
                let (end_ms, bound_to) = (self.now_ms + lease_ms, is_bound.then_some(client));
                let hold = Hold { owner, count: 1, end_ms, bound_to, is_shared };
                self.holds.entry(*place).or_default().push(hold);
                self.received.push((client, Some(owner), acquired(lease_ms, 1)));
            }
        }
        self.queues = queues;
    }

    fn advance(&mut self, span_ms: i64) {
        for _ in 0..span_ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            self.retain_holds(|hold| hold.end_ms > now_ms);
            for queue in self.queues.values_mut() {
                let over = queue.iter().filter(|waiter| waiter.end_ms <= now_ms);
                let timeout = "[\"status\", \"timeout\", ".to_owned();
                self.received.extend(over.map(|waiter| (waiter.client, None, timeout.clone())));
                queue.retain(|waiter| waiter.end_ms > now_ms);
            }
            self.serve();
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        let holds = std::mem::take(&mut self.holds);
        let swapped = |database| match database {
            database if database == one => other,
            database if database == other => one,
            database => database,
        };
        let holds =
            holds.into_iter().map(|((database, key), holds)| ((swapped(database), key), holds));
        self.holds = holds.collect();
    }

    fn refused(&self, place: Place) -> Option<String> {
        let holds = self.holds.get(&place)?;
        let (holders, queue) = (holds.len(), self.queues.get(&place).map_or(0, VecDeque::len));
        let ttl = holds.iter().map(|hold| hold.end_ms).max()? - self.now_ms;
        Some(format!(
            "[\"status\", \"refused\", \"holders\", {holders}, \"ttl\", {ttl}, \
             \"queue\", {queue}]"
        ))
    }
}

const OUT_OF_MEMORY: &str = "!OOM command not allowed when used memory > 'maxmemory'.";
const DISK_FULL: &str = "!MISCONF Errors writing to the AOF file: No space left on device";

/// The reply to a grant, without its token.
fn acquired(ttl: i64, count: i64) -> String {
    format!("[\"status\", \"acquired\", \"ttl\", {ttl}, \"count\", {count}]")
}

/// An engine and the model of its locks.
struct Trial {
    stage: Stage,
    model: Model,
    /// The names of the connections of the clients.
    names: [String; CLIENTS],
    last: u32,
    greatest_token: u64,
    /// The token of the last grant.
    last_token: u64,
    /// The tokens of all owners that have held a lock.
    tokens: BTreeMap<u32, u64>,
}

impl Trial {
    fn new() -> Trial {
        let names = std::array::from_fn(|client| format!("{client}.0"));
        let stage = Stage::new(Settings::default());
        let (model, tokens) = (Model::default(), BTreeMap::new());
        Trial { stage, model, names, last: 0, greatest_token: 0, last_token: 0, tokens }
    }

    fn run(&mut self, client: usize, command: &str) -> String {
        let client = self.stage.client(&self.names[client]);
        let reply = self.stage.run(client, &words(command)).0;
        self.without_token(reply, 0)
    }

    /// A reply without the token of a grant, which is at least this one.
    fn without_token(&mut self, reply: String, token_min: u64) -> String {
        let Some((before, rest)) = reply.split_once("\"token\", ") else { return reply };
        let (token, rest) = rest.split_once(", ").expect("other fields");
        let token = token.parse().expect("a number");
        assert!(token >= token_min);
        self.greatest_token = self.greatest_token.max(token);
        self.last_token = token;
        format!("{before}{rest}")
    }

    fn step(&mut self, step: &Step) {
        let Step { client, key, action } = step.clone();
        match action {
            Action::Advance { span_ms } => {
                self.model.advance(span_ms);
                (0..span_ms).for_each(|_| self.stage.advance(1000));
            }
            Action::Disconnect => self.disconnect(client),
            Action::Fill { memory_is_full, disk_is_full } => {
                self.model.refusal = match (memory_is_full, disk_is_full) {
                    (true, _) => Some(OUT_OF_MEMORY),
                    (false, true) => Some(DISK_FULL),
                    (false, false) => None,
                };
                self.stage.engine.settings.maxmemory_bytes = u64::from(memory_is_full);
                self.stage.engine.set_disk_is_full(disk_is_full);
            }
            _ if self.model.is_blocked(client) => {}
            action => self.request(client, (self.model.selected[client], key), &action),
        }
        self.compare();
    }

    fn disconnect(&mut self, client: usize) {
        let (id, time) = (self.stage.client(&self.names[client]), self.stage.time());
        self.stage.engine.disconnect(id);
        self.stage.engine.serve_waiters(time, |_| false);
        self.last += 1;
        self.names[client] = format!("{client}.{}", self.last);
        self.model.selected[client] = 0;
        self.model.queues.values_mut().for_each(|queue| queue.retain(|it| it.client != client));
        self.model.retain_holds(|hold| hold.bound_to != Some(client));
        self.model.serve();
    }

    /// Runs a request of a client that is not blocked.
    fn request(&mut self, client: usize, place: Place, action: &Action) {
        let key = format!("k{}", place.1);
        let now_ms = self.model.now_ms;
        let holds = self.model.holds.get_mut(&place);
        let hold = holds.and_then(|holds| {
            let one = client % holds.len();
            holds.get_mut(one)
        });
        let owner = hold.as_ref().map_or("none".to_owned(), |hold| format!("o{}", hold.owner));
        let (command, reply) = match *action {
            Action::Select { database } => {
                self.model.selected[client] = database;
                (format!("SELECT {database}"), "OK".to_owned())
            }
            Action::Acquire { .. } => return self.acquire(client, place, action),
            Action::Validate => return self.validate(client, place),
            Action::AcquireAgain { lease_ms } => {
                let Some(hold) = hold.filter(|it| it.bound_to.is_none()) else { return };
                hold.count += 1;
                hold.end_ms = hold.end_ms.max(now_ms + lease_ms);
                let shared = if hold.is_shared { " SHARED" } else { "" };
                let reply = acquired(hold.end_ms - now_ms, hold.count);
                (format!("LOCK.ACQUIRE {key} {owner} TTL {lease_ms}{shared}"), reply)
            }
            Action::Renew { lease_ms } => {
                let reply = i32::from(hold.is_some()).to_string();
                if let Some(hold) = hold {
                    hold.end_ms = now_ms + lease_ms;
                    hold.bound_to = hold.bound_to.map(|_| client);
                }
                (format!("LOCK.RENEW {key} {owner} TTL {lease_ms}"), reply)
            }
            Action::Release => {
                let count = hold.map(|hold| {
                    hold.count -= 1;
                    hold.count
                });
                self.model.retain_holds(|hold| hold.count > 0);
                let reply = count.map_or("nil".to_owned(), |count| count.to_string());
                (format!("LOCK.RELEASE {key} {owner}"), reply)
            }
            Action::Force => {
                let is_held = self.model.holds.remove(&place).is_some();
                (format!("LOCK.FORCE {key}"), i32::from(is_held).to_string())
            }
            Action::Move { database } => {
                let reply = self.run(client, &format!("MOVE {key} {database}"));
                let is_refused = reply == "0" || reply.starts_with('!');
                return assert!(is_refused, "{reply}");
            }
            Action::Swap { one, other } => {
                self.model.swap(one, other);
                (format!("SWAPDB {one} {other}"), "OK".to_owned())
            }
            Action::Disconnect | Action::Advance { .. } | Action::Fill { .. } => return,
        };
        self.model.serve();
        assert_eq!(self.run(client, &command), reply, "{command}");
    }

    /// Asks of each token whether its grant counts at a place.
    fn validate(&mut self, client: usize, place: Place) {
        for (owner, token) in self.tokens.clone() {
            let holds = self.model.holds.get(&place);
            let counts = holds.is_some_and(|holds| holds.iter().any(|hold| hold.owner == owner));
            let command = format!("LOCK.VALIDATE k{} {token}", place.1);
            let reply = self.run(client, &command);
            assert_eq!(reply, i32::from(counts).to_string(), "{command} of o{owner}");
        }
    }

    fn acquire(&mut self, client: usize, place: Place, action: &Action) {
        let Action::Acquire { lease_ms, wait_ms, is_bound, is_shared } = *action else { return };
        self.last += 1;
        let (owner, now_ms) = (self.last, self.model.now_ms);
        let mut command = format!("LOCK.ACQUIRE k{} o{owner} TTL {lease_ms}", place.1);
        command += &wait_ms.map_or(String::new(), |wait_ms| format!(" WAIT {wait_ms}"));
        command += if is_bound { " BOUND GRACE 0" } else { "" };
        command += if is_shared { " SHARED" } else { "" };
        let is_granted = self.model.refusal.is_none()
            && self.model.admits(place, is_shared)
            && self.model.queues.get(&place).is_none_or(VecDeque::is_empty);
        let reply = match (self.model.refusal, wait_ms) {
            (Some(refusal), _) => refusal.to_owned(),
            _ if is_granted => {
                let (end_ms, bound_to) = (now_ms + lease_ms, is_bound.then_some(client));
                let hold = Hold { owner, count: 1, end_ms, bound_to, is_shared };
                self.model.holds.entry(place).or_default().push(hold);
                acquired(lease_ms, 1)
            }
            (None, None) => self.model.refused(place).expect("a lock that is held"),
            (None, Some(wait_ms)) => {
                let end_ms = now_ms + wait_ms;
                let waiter = Waiter { client, owner, lease_ms, end_ms, is_bound, is_shared };
                self.model.queues.entry(place).or_default().push_back(waiter);
                String::new()
            }
        };
        assert_eq!(self.run(client, &command), reply, "{command}");
        if is_granted {
            self.tokens.insert(owner, self.last_token);
        }
    }

    /// Compares what blocked clients have received, each lock, and the lock view.
    fn compare(&mut self) {
        let token_min = self.greatest_token + 1;
        let mut expected = std::mem::take(&mut self.model.received);
        for client in 0..CLIENTS {
            let replies = self.stage.answers(&format!("{}<", self.names[client]));
            for reply in replies.iter().map(render) {
                let reply = self.without_token(reply, token_min);
                let index = expected.iter().position(|it| it.0 == client).expect("a reply");
                let (_, owner, expected) = expected.remove(index);
                self.tokens.extend(owner.map(|owner| (owner, self.last_token)));
                assert!(reply.starts_with(&expected), "{client}: {reply} is not {expected}");
            }
        }
        assert_eq!(expected, []);
        for database in 0..DATABASES {
            self.stage.check(&format!("v> SELECT {database} => OK"));
            for key in 0..KEYS {
                self.compare_lock((database, key));
            }
        }
        let shown = |((database, key), holds): (&Place, &Vec<Hold>)| {
            let mut counts: Vec<i64> = holds.iter().map(|hold| hold.count).collect();
            counts.sort_unstable();
            format!("{database} k{key} {counts:?}")
        };
        let held: BTreeSet<String> = self.model.holds.iter().map(shown).collect();
        assert_eq!(self.view(), held);
    }

    /// Compares a lock of the database that `v` has selected.
    fn compare_lock(&mut self, place: Place) {
        let key = format!("k{}", place.1);
        match (self.model.refused(place), self.model.holds.get(&place)) {
            (Some(refused), Some(holds)) => {
                for hold in holds {
                    let owner = format!("...\"owner\", \"o{}\", ...", hold.owner);
                    self.stage.check(&format!("v> LOCK.INFO {key} => {owner}"));
                }
                let refused = self.model.refusal.unwrap_or(&refused);
                self.stage.check(&format!("v> LOCK.ACQUIRE {key} view TTL 2 => {refused}"));
            }
            _ => self.stage.check(&format!("v> EXISTS {key} => 0")),
        }
    }

    /// The database and key of each lock in the lock view, and how often it is held.
    fn view(&mut self) -> BTreeSet<String> {
        let view = match &self.stage.answers("v> LOCKWHEEL LOCKS")[..] {
            [Reply::Bulk(text)] => serde_json::from_slice::<Value>(text).expect("JSON"),
            other => panic!("{other:?}"),
        };
        let locks = view["locks"].as_array().expect("locks").iter();
        let shown = |lock: &Value| {
            let key = lock["key"].as_str().expect("a key");
            let holders = lock["holders"].as_array().expect("holders").iter();
            let mut counts: Vec<i64> =
                holders.map(|holder| holder["count"].as_i64().expect("a count")).collect();
            counts.sort_unstable();
            format!("{} {key} {counts:?}", lock["database"])
        };
        locks.map(shown).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn native_locks_of_several_databases_agree_with_a_model(
        steps in prop::collection::vec(steps(), 1..60),
    ) {
        let mut trial = Trial::new();
        for step in &steps {
            trial.step(step);
        }
        trial.step(&Step { client: 0, key: 0, action: Action::Advance { span_ms: 1000 } });
        prop_assert!(trial.model.holds.is_empty());
    }
}
