//! A client that inspects a native lock repeatedly: see [`crate::native`].

use lockwheel_compat::random::Random;

use super::{Actor, REPLY_TIMEOUT_US, report_late_reply};
use crate::core::{Core, Notice};
use crate::native::{Idle, Look};

/// A client that inspects a native lock.
pub struct Observer {
    client: usize,
    connection: usize,
    lock: String,
    random: Random,
    asked_us: Option<i64>,
    idle: Option<Idle>,
    is_connected: bool,
    timer: u64,
}

impl Observer {
    pub fn new(core: &mut Core, client: usize, lock: String) -> Observer {
        let random = Random::of(core.plan.seed, core.plan.roles[client].0);
        Observer {
            client,
            connection: core.connect(client, 0, 0),
            lock,
            random,
            asked_us: None,
            idle: None,
            is_connected: false,
            timer: 0,
        }
    }

    fn set_timer(&mut self, core: &mut Core, after_us: i64) {
        self.timer += 1;
        core.set_timer(self.client, after_us, self.timer);
    }

    fn ask(&mut self, core: &mut Core) {
        if self.is_connected && !core.is_ending {
            core.send(self.connection, &["LOCK.INFO", &self.lock]);
            self.asked_us = Some(core.now_us);
            self.set_timer(core, REPLY_TIMEOUT_US);
        }
    }
}

impl Actor for Observer {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.is_connected = true;
                self.ask(core);
            }
            Notice::Lost(..) => {
                (self.is_connected, self.asked_us, self.idle) = (false, None, None);
            }
            Notice::Received(_, frame) => {
                let Some(asked_us) = self.asked_us.take() else { return };
                // Without a log, what was released before a crash may be held again.
                if frame.kind == b'-' || core.plan.durability.is_lossy() {
                    self.idle = None;
                } else {
                    let (now_us, disturbed_us) = (core.now_us, core.disturbed_us);
                    let lag_us = if core.plan.is_cluster { i64::MAX / 4 } else { 0 };
                    let look = Look { asked_us, now_us, disturbed_us, lag_us };
                    let wrong = core.native.shown(&self.lock, &frame, look, &mut self.idle);
                    wrong.into_iter().for_each(|text| core.report("native", text));
                }
                let after_us = self.random.between(0, 40_000);
                self.set_timer(core, after_us);
            }
            Notice::Timer(timer) if timer == self.timer => match self.asked_us {
                Some(asked_us) => {
                    if self.is_connected {
                        report_late_reply(core, asked_us, "a question for a lock");
                    }
                    core.lose(self.connection);
                }
                None => self.ask(core),
            },
            Notice::Timer(_) => {}
        }
    }
}
