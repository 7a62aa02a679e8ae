//! The faults of a history.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockwheel_compat::random::Random;
use lockwheel_log::Disk;
use lockwheel_simulated_disk::DiskFault;
use lockwheel_simulated_network::Direction;

use super::{Core, Event, SECOND_US, Work};
use crate::plan::FaultKind;

impl Core {
    /// Carries out the fault with this number.
    pub(super) fn fault(&mut self, number: usize) {
        let fault = self.plan.faults[number];
        let server = fault.server;
        self.note(|| format!("fault of server {server}: {:?}", fault.kind));
        self.disturb(0);
        let now_us = self.now_us;
        let machine = &mut self.machines[server];
        let is_up = machine.server.is_some() && machine.suspended_until_us <= now_us;
        match fault.kind {
            FaultKind::WallStep(by_us) => machine.step_wall(by_us),
            FaultKind::Suspend(span_us) => {
                machine.suspend(now_us, span_us);
                self.disturb(span_us);
            }
            FaultKind::Crash { wall_us } => self.crash(server, wall_us, None),
            FaultKind::Move { boot_us } => self.crash(server, 0, Some(boot_us)),
            FaultKind::DiskIsSlow(span_us) => {
                machine.slow_until_us = now_us + span_us;
                self.disturb(span_us);
            }
            FaultKind::StallThenCrash(span_us) => {
                machine.slow_until_us = now_us + span_us;
                let generation = machine.generation;
                self.disturb(span_us);
                self.schedule(span_us, Event::Crash(server, generation));
            }
            FaultKind::CrashDuringOperation(after) => {
                machine.add_disk_fault(after, DiskFault::Crash);
            }
            FaultKind::KillDuringOperation(after) => machine.kill_during(after),
            FaultKind::OperationFails(after) => machine.add_disk_fault(after, DiskFault::Fails),
            FaultKind::Pause(span_us) => {
                machine.pause(now_us, span_us);
                self.disturb(span_us);
            }
            FaultKind::Isolate(span_us) => self.cut(server, true, span_us),
            FaultKind::Deafen(span_us) => self.cut(server, false, span_us),
            FaultKind::SlowLinks(span_us) => self.slow_links(number, span_us),
            FaultKind::Replace => self.begin_to_replace(server),
            FaultKind::HandOver => self.begin_to_hand_over(server),
            FaultKind::ClientPauses(span_us) => self.pause_a_client(number, span_us),
            FaultKind::ConnectionLost => self.lose_a_connection(number),
            _ if !is_up => {}
            FaultKind::Kill => self.end_process(server),
            FaultKind::Stop => {
                machine.must_go_on = false;
                machine.use_clocks(now_us);
                machine.server.iter_mut().for_each(|process| process.stop());
                self.after_server(server);
            }
            FaultKind::DiskIsFull => {
                let names = machine.disk.names().unwrap_or_default();
                let bytes = names.iter().filter_map(|name| machine.disk.contents(name));
                let used: usize = bytes.map(|bytes| bytes.len()).sum();
                let has_log = self.plan.durability.has_log();
                // Without a log, less than the file of the lease ceiling.
                let free_max = if has_log { 4_000 } else { 600 };
                machine.disk.set_space(Some(used as u64 + machine.random.below(free_max)));
                machine.must_go_on = !has_log;
            }
            FaultKind::SecondStart => self.start_second(server),
            FaultKind::DamagedRead => self.start_damaged(server, number),
            FaultKind::FailedRead => {
                self.end_process(server);
                let machine = &mut self.machines[server];
                let after = 1 + machine.random.below(12);
                machine.add_disk_fault(after, DiskFault::Fails);
            }
        }
    }

    /// Cuts the directions from other nodes to this one for a span, or all between them.
    fn cut(&mut self, server: usize, both_directions: bool, span_us: i64) {
        let node = |server: usize| self.machines[server].node_id();
        let others = (0..self.plan.servers).filter(|other| *other != server);
        let mut directions: Vec<Direction> =
            others.map(|other| (node(other), node(server))).collect();
        if both_directions {
            directions.extend(directions.clone().into_iter().map(|(from, to)| (to, from)));
        }
        self.network.lock().cut.extend(&directions);
        self.disturb(span_us);
        self.schedule(span_us, Event::Mend(directions));
    }

    /// Lets the links between nodes carry little for a span.
    fn slow_links(&mut self, number: usize, span_us: i64) {
        let mut random = Random::of(self.plan.seed, 20_000 + number as u64);
        let bytes_per_second = *random.pick(&[20_000, 100_000]);
        self.network.lock().bytes_per_second = Some(bytes_per_second);
        self.disturb(span_us);
        self.schedule(span_us, Event::MendLinks);
    }

    /// Servers may not reply for this span.
    pub(super) fn disturb(&mut self, span_us: i64) {
        self.disturbed_us = self.disturbed_us.max(self.now_us + span_us);
    }

    fn pause_a_client(&mut self, number: usize, span_us: i64) {
        let mut random = Random::of(self.plan.seed, 20_000 + number as u64);
        let client = random.below(self.plan.roles.len() as u64) as usize;
        self.paused_until_us[client] = self.now_us + span_us;
        self.disturb(span_us);
    }

    fn lose_a_connection(&mut self, number: usize) {
        let mut random = Random::of(self.plan.seed, 20_000 + number as u64);
        if !self.connections.is_empty() {
            let connection = random.below(self.connections.len() as u64) as usize;
            self.drop_connection(connection);
        }
    }

    /// Checks that a second process cannot use the directory.
    fn start_second(&mut self, server: usize) {
        if !self.plan.durability.has_log() && !self.plan.has_guard {
            return;
        }
        let (plan, now_us) = (self.plan.clone(), self.now_us);
        let machine = &mut self.machines[server];
        machine.use_clocks(now_us);
        let started = catch_unwind(AssertUnwindSafe(|| machine.start_server(&plan).map(drop)));
        match started {
            Ok(Err(error)) => self.note(|| format!("a second server does not start: {error}")),
            _ => self.report("second", "a second server uses the directory".to_owned()),
        }
    }

    /// Restarts the process with a damaged log. It may refuse to start; if it starts although the
    /// log is damaged, the judges decide whether that was right.
    fn start_damaged(&mut self, server: usize, fault: usize) {
        self.end_process(server);
        let plan = &self.plan;
        let machine = &mut self.machines[server];
        // These have choices of their own, so that the other histories stay as they are.
        let mut random = Random::of(plan.seed, 30_000 + fault as u64);
        let Some((name, intact)) = machine.damage(&mut random) else { return };
        let started = self.start_process(server);
        let machine = &mut self.machines[server];
        match started {
            Ok(()) => {
                let generation = machine.generation;
                self.note(|| format!("server {server} starts although {name} is damaged"));
                self.schedule(SECOND_US, Event::Server(server, generation, Work::Second));
                self.after_server(server);
                if self.plan.is_cluster {
                    // The node may lack what it has acknowledged.
                    self.begin_to_replace(server);
                }
            }
            _ => {
                machine.server = None;
                machine.disk.end_process();
                machine.disk.set_contents(&name, &intact);
                self.note(|| format!("server {server} does not start: {name} is damaged"));
            }
        }
    }
}
