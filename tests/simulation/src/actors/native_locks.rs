//! A client that takes, renews and releases a native lock.

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::random::Random;
use lockwheel_compat::wire::frame::Frame;

use super::{Actor, REPLY_TIMEOUT_US, is_missing, number, report_late_reply, words};
use crate::core::{Core, Notice};
use crate::native::{Attempt, Mode, PERMITS, field};
use crate::plan::NativeLock;

/// Longest span by which a wait may end early: the server counts in milliseconds.
const EARLY_US: i64 = 2_000;

/// A client of a native lock.
pub struct NativeClient {
    client: usize,
    connection: usize,
    kind: NativeLock,
    lock: String,
    random: Random,
    longest_us: i64,
    /// Counts the attempts: each has an owner of its own.
    attempts: u64,
    terms: Terms,
    pending: Option<Pending>,
    /// How often the client believes to hold the lock, and since when.
    holds: u32,
    granted_us: i64,
    /// The last fencing token.
    token: Option<i64>,
    /// Whether the client must renew first, after a lost connection.
    must_renew: bool,
    is_connected: bool,
    /// Number of the valid timer; others are out of date.
    timer: u64,
    /// The timer at which the client gives up the connection although it waits for a reply.
    impatience: Option<u64>,
}

/// How an owner takes the lock.
struct Terms {
    owner: String,
    mode: Mode,
    ttl_us: i64,
    grace_us: Option<i64>,
}

/// A request without a reply.
struct Pending {
    action: Action,
    asked_us: i64,
    wait_us: i64,
    /// Whether the owner has not had the lock before.
    is_first: bool,
}

impl NativeClient {
    pub fn new(core: &mut Core, client: usize, kind: NativeLock, lock: String) -> NativeClient {
        let mut random = Random::of(core.plan.seed, core.plan.roles[client].0);
        let longest_us = *random.pick(&[500_000, 1_000_000, 4_000_000]);
        NativeClient {
            client,
            connection: core.connect(client, 0, 0),
            kind,
            lock,
            random,
            longest_us,
            attempts: 0,
            terms: Terms { owner: String::new(), mode: Mode::Exclusive, ttl_us: 0, grace_us: None },
            pending: None,
            holds: 0,
            granted_us: 0,
            token: None,
            must_renew: false,
            is_connected: false,
            timer: 0,
            impatience: None,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    // --- requests ---

    /// Draws how the next owner takes the lock.
    fn draw_terms(&mut self, core: &Core) {
        let (id, _) = core.plan.roles[self.client];
        self.attempts += 1;
        let random = &mut self.random;
        self.terms = Terms {
            owner: format!("c{id}.{}", self.attempts),
            mode: match self.kind {
                NativeLock::Semaphore => Mode::Permits(random.between(1, 3) as u32),
                NativeLock::Exclusive => Mode::Exclusive,
                NativeLock::Shared if random.once_in(3) => Mode::Exclusive,
                NativeLock::Shared => Mode::Shared,
            },
            ttl_us: *random.pick(&[200_000, self.longest_us, 2 * self.longest_us]),
            grace_us: match random.once_in(2) {
                true => Some(*random.pick(&[0, 300_000, 1_000_000, 3_000_000])),
                false => None,
            },
        };
    }

    fn acquire(&self) -> Action {
        Action::Acquire { ttl_us: self.terms.ttl_us, shared: self.terms.mode == Mode::Shared }
    }

    fn act(&mut self, core: &mut Core) {
        if self.pending.is_some() || !self.is_connected {
            return;
        }
        let held_us = core.now_us - self.granted_us;
        if self.holds == 0 {
            return self.begin(core);
        }
        if std::mem::take(&mut self.must_renew) && !core.is_ending {
            return self.ask(core, Action::Renew { ttl_us: self.terms.ttl_us }, 0);
        }
        match self.random.below(10) {
            0..3 if !core.is_ending => {
                self.ask(core, Action::Renew { ttl_us: self.terms.ttl_us }, 0);
            }
            3 if self.holds < 3 && !core.is_ending => self.ask(core, self.acquire(), 0),
            // The lease ends by itself.
            4 if held_us < self.terms.ttl_us && self.terms.grace_us.is_none() => {
                self.holds = 0;
                let after_us = self.random.between(0, self.terms.ttl_us);
                self.set_timer(core, after_us);
            }
            5 if self.terms.grace_us.is_some() => core.lose(self.connection),
            _ => self.ask(core, Action::Release { ttl_us: None }, 0),
        }
    }

    /// Asks for the lock, for a new owner.
    fn begin(&mut self, core: &mut Core) {
        if core.is_ending {
            return;
        }
        self.draw_terms(core);
        self.must_renew = false;
        let wait_us = *self.random.pick(&[0, 100_000, 1_000_000, 3_000_000]);
        let Terms { owner, mode, grace_us, .. } = &self.terms;
        let attempt = Attempt::new(&self.lock, *mode, core.now_us, wait_us, *grace_us);
        core.native.asked(owner, attempt);
        self.ask(core, self.acquire(), wait_us);
        if self.random.once_in(6) {
            let longest_us = *self.random.pick(&[2_000, 10_000, wait_us]);
            let after_us = self.random.between(0, longest_us);
            self.timer += 1;
            self.impatience = Some(self.timer);
            core.set_timer(self.client, after_us, self.timer);
            self.set_timer(core, wait_us + REPLY_TIMEOUT_US);
        }
    }

    fn ask(&mut self, core: &mut Core, action: Action, wait_us: i64) {
        let words = self.words(action, wait_us);
        core.native.sent(&self.terms.owner);
        core.send(self.connection, &words);
        let (asked_us, is_first) = (core.now_us, self.holds == 0);
        self.pending = Some(Pending { action, asked_us, wait_us, is_first });
        self.set_timer(core, wait_us + REPLY_TIMEOUT_US);
    }

    fn words(&self, action: Action, wait_us: i64) -> Vec<String> {
        let Terms { owner, mode, ttl_us, grace_us } = &self.terms;
        let (lock, ttl_ms, wait_ms) = (&self.lock, ttl_us / 1000, wait_us / 1000);
        let line = match action {
            Action::Acquire { .. } => {
                let wait = if wait_ms > 0 { format!(" WAIT {wait_ms}") } else { String::new() };
                let mode = match mode {
                    Mode::Exclusive => String::new(),
                    Mode::Shared => " SHARED".to_owned(),
                    Mode::Permits(count) => format!(" PERMITS {count} OF {PERMITS}"),
                };
                let bound = grace_us.map(|grace_us| format!(" BOUND GRACE {}", grace_us / 1000));
                let bound = bound.unwrap_or_default();
                format!("LOCK.ACQUIRE {lock} {owner} TTL {ttl_ms}{wait}{mode}{bound}")
            }
            Action::Renew { .. } => format!("LOCK.RENEW {lock} {owner} TTL {ttl_ms}"),
            Action::Release { .. } => format!("LOCK.RELEASE {lock} {owner}"),
        };
        words(&line)
    }

    // --- replies ---

    fn replied(&mut self, core: &mut Core, reply: &Frame) {
        let Some(pending) = self.pending.take() else { return };
        self.impatience = None;
        if reply.kind == b'-' {
            // It was not carried out.
            if pending.is_first {
                core.native.not_granted(&self.terms.owner, false);
            }
            let after_us = self.random.between(10_000, 100_000);
            return self.set_timer(core, after_us);
        }
        let asked = Event::asked(&self.lock, &self.terms.owner, pending.action, pending.asked_us);
        let event = match pending.action {
            Action::Acquire { .. } => self.acquired(core, &pending, reply, asked),
            Action::Renew { .. } => {
                let is_renewed = number(reply) == Some(1);
                let answer = if is_renewed { Answer::Granted } else { Answer::NotOwner };
                if is_renewed {
                    self.granted_us = pending.asked_us;
                } else {
                    self.lose_lock(core);
                }
                asked.answered(answer, core.now_us)
            }
            Action::Release { .. } => {
                let left = number(reply).filter(|_| !is_missing(reply));
                let answer = match left {
                    None => Answer::NotOwner,
                    Some(0) => Answer::Released,
                    Some(_) => Answer::Kept,
                };
                self.holds = left.unwrap_or(0) as u32;
                if self.holds == 0 {
                    self.lose_lock(core);
                }
                Event { count: left, ..asked.answered(answer, core.now_us) }
            }
        };
        core.note_answer(self.connection, event.invoked_us);
        self.record(core, event);
        let span_us = self.terms.ttl_us.min(2_000_000);
        let longest_us = match (self.holds, self.random.below(8)) {
            (0, _) => 60_000,
            (_, 0) => span_us * 3 / 2,
            (_, 1..4) => 5_000,
            _ => span_us / 3,
        };
        let after_us = self.random.between(0, longest_us);
        self.set_timer(core, after_us);
    }

    fn acquired(
        &mut self,
        core: &mut Core,
        pending: &Pending,
        reply: &Frame,
        asked: Event,
    ) -> Event {
        let (now_us, owner) = (core.now_us, &self.terms.owner);
        let status = field(reply, "status").map(|status| &status.text[..]);
        if status == Some(b"acquired") {
            let number_of = |name| field(reply, name).and_then(number);
            let (token, count) = (number_of("token"), number_of("count"));
            if pending.is_first {
                core.native.granted(owner, token.unwrap_or_default(), now_us);
            }
            self.holds = count.unwrap_or(1) as u32;
            self.granted_us = pending.asked_us;
            // An owner that acquires the lock again keeps its token.
            let token = token.filter(|token| self.token.replace(*token) != Some(*token));
            return Event { token, count, ..asked.answered(Answer::Granted, now_us) };
        }
        let has_waited = status == Some(b"timeout");
        let wait_ends_us = pending.asked_us + pending.wait_us;
        if has_waited != (pending.wait_us > 0) || now_us < wait_ends_us - EARLY_US {
            let text = format!("{owner} is refused {} before its wait has ended", self.lock);
            core.report("native", text);
        }
        if pending.is_first {
            core.native.not_granted(owner, has_waited);
        }
        // An owner that is refused has lost its lock.
        self.holds = 0;
        asked.answered(Answer::Refused { remaining_us: None }, now_us)
    }

    fn lose_lock(&mut self, core: &mut Core) {
        self.holds = 0;
        core.native.ended(&self.terms.owner, core.now_us);
    }

    /// Records an event, for a semaphore once for each permit.
    fn record(&self, core: &mut Core, event: Event) {
        if let Mode::Permits(count) = self.terms.mode {
            for permit in 1..count {
                let client = format!("{}#{permit}", event.client);
                core.record(Event { client, token: None, ..event.clone() });
            }
        }
        core.record(event);
    }

    // --- connections ---

    /// Handles the loss of the connection: the outcome of the pending request stays unknown.
    fn lost(&mut self, core: &mut Core, is_over: bool) {
        self.is_connected = false;
        self.impatience = None;
        let (lost_us, output_us) = core.lost_us(self.connection);
        let mut is_unanswered = false;
        if let Some(pending) = self.pending.take() {
            is_unanswered = pending.is_first && output_us <= pending.asked_us;
            self.record_unknown(core, pending.action, pending.asked_us, is_over);
        }
        core.native.lost(&self.terms.owner, lost_us, is_unanswered);
        if let Some(grace_us) = self.terms.grace_us.filter(|_| self.holds > 0) {
            // From now on the lock is held for the grace, at least.
            self.record_unknown(core, Action::Renew { ttl_us: grace_us }, lost_us, true);
            self.must_renew = true;
        }
    }

    fn record_unknown(&self, core: &mut Core, action: Action, asked_us: i64, is_over: bool) {
        let mut event = Event::asked(&self.lock, &self.terms.owner, action, asked_us);
        event.returned_us = is_over.then_some(core.now_us);
        self.record(core, event);
    }
}

impl Actor for NativeClient {
    fn end(&mut self, core: &mut Core) {
        if let Some(pending) = self.pending.take() {
            self.record_unknown(core, pending.action, pending.asked_us, false);
        }
    }

    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.is_connected = true;
                let after_us = self.random.between(0, 50_000);
                self.set_timer(core, after_us);
            }
            Notice::Lost(_, is_over) => self.lost(core, is_over),
            Notice::Received(_, frame) => self.replied(core, &frame),
            Notice::Timer(timer) if self.impatience == Some(timer) => core.lose(self.connection),
            Notice::Timer(timer) if timer == self.timer => match &self.pending {
                Some(pending) => {
                    if self.is_connected {
                        report_late_reply(core, pending.asked_us, "a request to a native lock");
                    }
                    core.lose(self.connection);
                }
                None => self.act(core),
            },
            Notice::Timer(_) => {}
        }
    }
}
