//! Orders to the clock of a server for tests.

use std::sync::atomic::Ordering;

use super::core::{Failed, Host};
use crate::limits;
use crate::net::registry::Receiver;
use crate::net::turn::{self, Pending};
use lockwheel_engine::Engine;
use lockwheel_engine::timing::time::{ClockOrder, Millis, Rate};

impl Host {
    /// Runs an order to the clock from a caller in this process. While a slow script holds the
    /// engine, the clock is only moved: work that becomes due is done when the script is over.
    pub(crate) fn run_clock_order(&self, order: ClockOrder) -> Result<(), Failed> {
        let engine = loop {
            if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_WAIT_BEFORE_SEND) {
                break engine;
            }
            if self.script_is_slow.load(Ordering::Acquire) {
                self.move_clock_only(order);
                return Ok(());
            }
        };
        self.with_guard(engine, |engine| self.run_clock_order_with(engine, order), drop)
    }

    /// As [`Host::run_clock_order`], for a caller that holds the engine, perhaps within a script.
    pub(crate) fn run_clock_order_with(&self, engine: &mut Engine, order: ClockOrder) {
        engine.clock_order(order, self.now());
        if engine.running_script().is_some() {
            return self.move_clock_only(order);
        }
        match order {
            ClockOrder::Run(rate) => self.set_clock_rate(rate),
            ClockOrder::Restart(rate) => self.restart_clock(rate),
            ClockOrder::Advance(span) => {
                self.advance_to(engine, self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.advance_to(engine, micros(moment)),
            ClockOrder::Jump(span) if span.0 < 0 => self.clock.step_wall(span),
            ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
                let now = self.now();
                while engine.next_deadline().is_some_and(|next| now.reached(next)) {
                    self.tick(engine, now);
                    self.deliver_output(engine);
                }
            }
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
        self.deadline_timer.disarm();
        // Resumed clients continue in the order in which they came, not in the order of
        // the registry.
        turn::end();
        // Clients may have been idle for too long now.
        self.wake_all_clients();
    }

    /// Does all work that is due until `target_us`, in order, with the clock at each deadline. The
    /// clock does not run meanwhile.
    pub(super) fn advance_to(&self, engine: &mut Engine, target_us: i64) {
        let rate = self.clock.set_rate(Rate::STOPPED);
        let target = Millis(target_us.div_euclid(1000));
        while let Some(deadline) = engine.next_deadline().filter(|&next| next <= target) {
            self.clock.set(deadline);
            self.tick(engine, self.now());
            self.deliver_and_run_resumed(engine);
            self.deliver_output(engine);
        }
        self.clock.set_us(target_us);
        self.clock.set_rate(rate);
    }

    /// As [`Host::deliver_output`], but resumed clients run their next requests at this
    /// time of the clock. Callers in this process continue on their own threads, after the move.
    pub(super) fn deliver_and_run_resumed(&self, engine: &mut Engine) {
        let mut resumed = Vec::new();
        let dependency = engine.take_dependency();
        self.deliver_all(engine, dependency, |delivery| {
            resumed.extend(delivery.resume.then_some(delivery.client));
        });
        for client in resumed {
            if let Some(Receiver::Socket(connection)) = self.registry.get(client) {
                connection.run_in_clock_move(self, engine);
                turn::enqueue(connection, Pending::Reply);
            }
        }
    }

    /// Changes the clock and does no work that becomes due, while a script runs.
    pub(super) fn move_clock_only(&self, order: ClockOrder) {
        match order {
            ClockOrder::Run(rate) => self.set_clock_rate(rate),
            ClockOrder::Restart(rate) => self.restart_clock(rate),
            ClockOrder::Advance(span) | ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.clock.set(moment),
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
    }

    /// Sets the rate. The clock stops on a whole millisecond: a lease that begins then ends exactly
    /// after its duration.
    pub(super) fn set_clock_rate(&self, rate: Rate) {
        self.clock.set_rate(rate);
        if rate.is_stopped() {
            let lease_us = self.clock.lease_us();
            self.clock.set_us(lease_us.saturating_add((-lease_us).rem_euclid(1000)));
        }
    }

    pub(super) fn restart_clock(&self, rate: Rate) {
        self.set_clock_rate(rate);
        self.clock.align_wall();
    }
}

fn micros(span: Millis) -> i64 {
    span.0.saturating_mul(1000)
}
