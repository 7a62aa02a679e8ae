//! A client that takes a lock on a majority of servers, as Redlock does.

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::random::Random;

use super::Actor;
use super::recipes::{meaning, request};
use crate::core::{Core, Notice};
use crate::plan::Recipe;

/// How long the client waits for a majority.
const ATTEMPT_US: i64 = 60_000;

const LOCK: &str = "redlock";

/// A client of a lock on a majority of servers.
pub struct Redlock {
    client: usize,
    connections: Vec<usize>,
    /// The replies that are still expected on each connection; only those of this attempt count.
    expected: Vec<Vec<u64>>,
    random: Random,
    attempt: u64,
    owner: String,
    asked_us: i64,
    granted: usize,
    state: State,
    timer: u64,
    ttl_us: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Asking,
    Holding,
}

impl Redlock {
    pub fn new(core: &mut Core, client: usize) -> Redlock {
        let servers = core.plan.servers;
        let connections = (0..servers).map(|server| core.connect(client, server, server)).collect();
        let mut random = Random::of(core.plan.seed, core.plan.roles[client].0);
        let ttl_us = *random.pick(&[200_000, 1_000_000, 5_000_000]);
        core.set_timer(client, 20_000, 0);
        Redlock {
            client,
            connections,
            expected: vec![Vec::new(); servers],
            random,
            attempt: 0,
            owner: String::new(),
            asked_us: 0,
            granted: 0,
            state: State::Idle,
            timer: 0,
            ttl_us,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    fn send_all(&mut self, core: &mut Core, action: Action, attempt: u64) {
        let words = request(Recipe::Redlock, LOCK, &self.owner, action, 0);
        for server in 0..self.connections.len() {
            core.send(self.connections[server], &words);
            self.expected[server].push(attempt);
        }
    }

    fn ask(&mut self, core: &mut Core) {
        let (id, _) = core.plan.roles[self.client];
        self.attempt += 1;
        self.owner = format!("c{id}.{}", self.attempt);
        (self.asked_us, self.granted, self.state) = (core.now_us, 0, State::Asking);
        let action = Action::Acquire { ttl_us: self.ttl_us, shared: false };
        self.send_all(core, action, self.attempt);
        self.set_timer(core, ATTEMPT_US.min(self.ttl_us / 2));
    }

    fn release(&mut self, core: &mut Core) {
        if self.state == State::Holding {
            let release = Action::Release { ttl_us: None };
            let event = Event::asked(LOCK, &self.owner, release, core.now_us);
            core.record(event.answered(Answer::Released, core.now_us));
        }
        self.state = State::Idle;
        self.send_all(core, Action::Release { ttl_us: None }, 0);
        let after_us = self.random.between(0, 100_000);
        self.set_timer(core, after_us);
    }

    fn granted(&mut self, core: &mut Core) {
        self.granted += 1;
        if self.granted != self.connections.len() / 2 + 1 || self.state != State::Asking {
            return;
        }
        self.state = State::Holding;
        let action = Action::Acquire { ttl_us: self.ttl_us, shared: false };
        let event = Event::asked(LOCK, &self.owner, action, self.asked_us);
        core.record(event.answered(Answer::Granted, core.now_us));
        let after_us = self.random.between(0, self.ttl_us * 6 / 5);
        self.set_timer(core, after_us);
    }
}

impl Actor for Redlock {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Lost(server, _) => self.expected[server].clear(),
            // Requests before were not sent.
            Notice::Connected(server) => self.expected[server].clear(),
            Notice::Received(server, frame) => {
                if self.expected[server].is_empty() {
                    return;
                }
                let attempt = self.expected[server].remove(0);
                let action = Action::Acquire { ttl_us: self.ttl_us, shared: false };
                let answer = meaning(Recipe::Redlock, action, &frame);
                if attempt == self.attempt && answer == Some(Answer::Granted) {
                    self.granted(core);
                }
            }
            Notice::Timer(timer) if timer == self.timer => match self.state {
                State::Idle if core.is_ending => {}
                State::Idle => self.ask(core),
                State::Asking | State::Holding => self.release(core),
            },
            Notice::Timer(_) => {}
        }
    }
}
