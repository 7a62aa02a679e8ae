//! A client that takes, renews and releases a lock on one server.

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::random::Random;

use super::recipes::{meaning, request};
use super::{Actor, REPLY_TIMEOUT_US, report_late_reply};
use crate::core::{Core, Notice};
use crate::plan::Recipe;

/// The permits of a semaphore.
pub const PERMITS: usize = 3;

/// A lease that never ends.
const FOREVER_US: i64 = 1 << 50;

/// A client of a lock on one server.
pub struct LockClient {
    client: usize,
    connection: usize,
    recipe: Recipe,
    lock: String,
    random: Random,
    ttl_us: i64,
    longest_us: i64,
    /// Number of attempts that need an owner of their own.
    attempt: u64,
    owner: String,
    /// The request without a reply, and its bytes to send it again.
    pending: Option<(Event, Vec<String>)>,
    /// Whether it was sent again.
    is_repeated: bool,
    /// How often the client believes to hold the lock, and since when.
    holds: u32,
    granted_us: i64,
    is_connected: bool,
    /// Whether the next reply is that of the SET of a semaphore.
    awaits_setup: bool,
    /// Number of the valid timer; others are out of date.
    timer: u64,
    latch: u64,
}

impl LockClient {
    pub fn new(core: &mut Core, client: usize, recipe: Recipe, lock: u32) -> LockClient {
        let connection = core.connect(client, 0, 0);
        let (id, _) = core.plan.roles[client];
        let mut random = Random::of(core.plan.seed, id);
        if recipe == Recipe::Redisson {
            core.connect(client, 1, 0);
        }
        let ttl_us = FOREVER_US;
        // Leases that are much longer than a history hide how they end.
        let longest_us = match core.plan.durability.keeps_keys() {
            true => *random.pick(&[1_000_000, 5_000_000]),
            false => *random.pick(&[500_000, 1_000_000, 2_000_000]),
        };
        LockClient {
            client,
            connection,
            recipe,
            lock: recipe.key(lock),
            random,
            ttl_us,
            longest_us,
            attempt: 0,
            owner: String::new(),
            pending: None,
            is_repeated: false,
            holds: 0,
            granted_us: 0,
            is_connected: false,
            awaits_setup: false,
            timer: 0,
            latch: 0,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    fn new_owner(&mut self, core: &Core) {
        let (id, _) = core.plan.roles[self.client];
        self.attempt += 1;
        if self.recipe != Recipe::Semaphore {
            self.ttl_us = match self.random.below(8) {
                0 => 2 * self.longest_us,
                1..4 => 200_000,
                _ => self.longest_us,
            };
        }
        self.owner = match self.recipe {
            Recipe::Redisson => format!("c{id}:1"),
            Recipe::ReadWrite if self.random.once_in(2) => format!("c{id}:{}.r", self.attempt),
            _ => format!("c{id}.{}", self.attempt),
        };
    }

    /// Does what a client of its state does next.
    fn act(&mut self, core: &mut Core) {
        if self.pending.is_some() || !self.is_connected {
            return;
        }
        let held_us = core.now_us - self.granted_us;
        if self.holds > 0 && self.recipe != Recipe::Semaphore && held_us > self.ttl_us * 2 {
            self.holds = 0;
        }
        if self.holds == 0 {
            if core.is_ending {
                return;
            }
            self.new_owner(core);
            return self.ask(core, self.acquire());
        }
        let can_renew = matches!(self.recipe, Recipe::Plain | Recipe::Redisson);
        let is_reentrant = self.recipe == Recipe::Redisson;
        let action = match self.random.below(10) {
            0..5 if can_renew && !core.is_ending => Action::Renew { ttl_us: self.ttl_us },
            5 if is_reentrant && self.holds < 3 => self.acquire(),
            // The lease ends by itself.
            6 if self.recipe != Recipe::Semaphore && held_us < self.ttl_us => {
                self.holds = 0;
                let after_us = self.random.between(0, self.ttl_us);
                return self.set_timer(core, after_us);
            }
            _ => Action::Release { ttl_us: Some(self.ttl_us) },
        };
        self.ask(core, action);
    }

    fn acquire(&self) -> Action {
        Action::Acquire { ttl_us: self.ttl_us, shared: self.owner.ends_with(".r") }
    }

    fn ask(&mut self, core: &mut Core, action: Action) {
        self.latch += 1;
        let words = request(self.recipe, &self.lock, &self.owner, action, self.latch);
        let is_plain_release = self.recipe != Recipe::Redisson;
        let recorded = match action {
            Action::Release { .. } if is_plain_release => Action::Release { ttl_us: None },
            action => action,
        };
        let event = Event::asked(&self.lock, &self.owner, recorded, core.now_us);
        core.send(self.connection, &words);
        (self.pending, self.is_repeated) = (Some((event, words)), false);
        self.set_timer(core, REPLY_TIMEOUT_US);
    }

    fn answered(&mut self, core: &mut Core, answer: Option<Answer>) {
        let Some((event, _)) = self.pending.take() else { return };
        let (action, asked_us) = (event.action, event.invoked_us);
        let Some(answer) = answer else {
            // An error: it was not carried out, unless it was before.
            if self.is_repeated {
                core.record(event);
            }
            let after_us = self.random.between(10_000, 100_000);
            return self.set_timer(core, after_us);
        };
        core.record(event.answered(answer, core.now_us));
        core.note_answer(self.connection, asked_us);
        let after_us = match answer {
            Answer::Granted => {
                self.granted_us = asked_us;
                self.holds += u32::from(matches!(action, Action::Acquire { .. }));
                let span_us = self.ttl_us.min(3_000_000);
                match self.random.below(8) {
                    0 => self.random.between(0, span_us * 3 / 2),
                    1..4 => self.random.between(0, 5_000),
                    _ => self.random.between(0, span_us / 3),
                }
            }
            Answer::Kept => {
                self.holds = self.holds.saturating_sub(1);
                self.random.between(0, 50_000)
            }
            Answer::Refused { .. } => {
                // A holder that is refused has lost its lock.
                self.holds = 0;
                self.random.between(1_000, 150_000)
            }
            _ => {
                self.holds = 0;
                self.random.between(0, 60_000)
            }
        };
        self.set_timer(core, after_us);
    }

    /// Handles a lost connection: the outcome of the pending request is unknown, unless it is sent
    /// again.
    fn lost(&mut self, core: &mut Core, is_over: bool) {
        self.is_connected = false;
        let is_latched = |event: &Event| {
            self.recipe == Recipe::Redisson && matches!(event.action, Action::Release { .. })
        };
        let Some((mut event, words)) = self.pending.take() else { return };
        if is_latched(&event) {
            self.pending = Some((event, words));
            return;
        }
        if matches!(event.action, Action::Release { .. }) && self.recipe == Recipe::Semaphore {
            self.holds = 0;
        }
        event.returned_us = is_over.then_some(core.now_us);
        core.record(event);
    }

    fn connected(&mut self, core: &mut Core) {
        self.is_connected = true;
        if let Some((_, words)) = &self.pending {
            self.is_repeated = true;
            core.send(self.connection, words);
            return self.set_timer(core, REPLY_TIMEOUT_US);
        }
        let after_us = self.random.between(0, 50_000);
        self.set_timer(core, after_us);
    }
}

impl Actor for LockClient {
    fn end(&mut self, core: &mut Core) {
        if let Some((event, _)) = self.pending.take() {
            core.record(event);
        }
    }

    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(0) => {
                if self.recipe == Recipe::Semaphore {
                    let permits = PERMITS.to_string();
                    core.send(self.connection, &["SET", &self.lock, &permits, "NX"]);
                    self.awaits_setup = true;
                }
                self.connected(core);
            }
            Notice::Connected(_) => {
                core.send(self.connection + 1, &["SUBSCRIBE", &format!("{}:channel", self.lock)]);
            }
            Notice::Lost(0, is_over) => self.lost(core, is_over),
            Notice::Lost(..) => {}
            Notice::Received(0, frame) => {
                if std::mem::take(&mut self.awaits_setup) {
                    // Without permits every attempt would be refused.
                    if frame.kind == b'-' {
                        core.lose(self.connection);
                    }
                    return;
                }
                let action = self.pending.as_ref().map(|(event, _)| event.action);
                if let Some(action) = action {
                    let answer = meaning(self.recipe, action, &frame);
                    self.answered(core, answer);
                }
            }
            // A message: the lock is free.
            Notice::Received(..) => {
                if self.holds == 0 && self.pending.is_none() {
                    self.set_timer(core, 0);
                }
            }
            Notice::Timer(timer) if timer == self.timer => match &self.pending {
                Some((event, _)) => {
                    if self.is_connected {
                        report_late_reply(core, event.invoked_us, "a request to a lock");
                    }
                    core.lose(self.connection);
                    self.set_timer(core, REPLY_TIMEOUT_US);
                }
                None => self.act(core),
            },
            Notice::Timer(_) => {}
        }
    }
}
