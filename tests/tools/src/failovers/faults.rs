//! Injects faults into servers under load: kills, stops and network partitions.

use std::time::Duration;

use clap::ValueEnum;
use lockwheel_compat::random::Random;
use lockwheel_prove::Fault;
use lockwheel_tests::load::clients::Load;
use lockwheel_tests::load::now_us;
use nix::sys::signal::Signal;

use crate::network::Cut;
use crate::probe::Probe;
use crate::servers::Servers;

/// Shortest and longest time with load before and after a fault.
const LOAD_MS: (i64, i64) = (200, 800);

/// Shortest and longest time for which a fault lasts after another server serves. The later a
/// former leader returns, the older are the requests that it has yet to answer.
const FAULT_MS: (i64, i64) = (0, 2_000);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum FailoverFault {
    /// The process of the leader is killed
    KillLeader,
    /// The process of the leader is stopped for a while, and goes on
    StopLeader,
    /// The leader does not reach the other servers for a while, but clients reach it
    CutLeader,
    /// Nothing reaches the leader for a while
    IsolateLeader,
    /// The process of another server is killed
    KillFollower,
}

impl FailoverFault {
    /// Number of faults of this kind among twelve.
    fn weight(self) -> usize {
        match self {
            FailoverFault::KillLeader => 5,
            FailoverFault::StopLeader | FailoverFault::CutLeader | FailoverFault::IsolateLeader => {
                2
            }
            FailoverFault::KillFollower => 1,
        }
    }

    fn needs_divisible_network(self) -> bool {
        matches!(self, FailoverFault::CutLeader | FailoverFault::IsolateLeader)
    }
}

/// An injected fault that has ended.
#[derive(Debug)]
pub(crate) struct InjectedFault {
    pub(crate) kind: FailoverFault,
    pub(crate) fault: Fault,
    /// When another server first granted a lock.
    pub(crate) granted_us: i64,
    /// Whether another server leads after the fault.
    pub(crate) has_moved: bool,
}

/// Chooses and injects faults.
pub(crate) struct Faults {
    faults: Vec<FailoverFault>,
    random: Random,
    probe: Probe,
    leader: usize,
}

impl Faults {
    /// Prepares faults of these kinds, or of all kinds if there are none.
    pub(crate) fn new(
        servers: &mut Servers,
        kinds: &[FailoverFault],
        random: Random,
    ) -> Result<Faults, String> {
        let kinds = if kinds.is_empty() { FailoverFault::value_variants() } else { kinds };
        let is_divisible = servers.network().is_divisible();
        let possible = kinds.iter().filter(|kind| is_divisible || !kind.needs_divisible_network());
        let faults: Vec<FailoverFault> =
            possible.flat_map(|fault| std::iter::repeat_n(*fault, fault.weight())).collect();
        if faults.iter().all(|fault| *fault == FailoverFault::KillFollower) {
            return Err("no fault moves the leader".to_owned());
        }
        let probe = Probe::new(servers.places());
        Ok(Faults { faults, random, probe, leader: servers.wait_until_whole()? })
    }

    /// Injects a fault, between two periods of load. Returns it after all servers serve again.
    pub(crate) fn inject(
        &mut self,
        servers: &mut Servers,
        load: &mut Load,
    ) -> Result<InjectedFault, String> {
        load.pass(self.span(LOAD_MS))?;
        let kind = *self.random.pick(&self.faults);
        let index = match kind {
            FailoverFault::KillFollower => (self.leader + 1) % servers.places().len(),
            _ => self.leader,
        };
        let begin_us = now_us();
        match kind {
            FailoverFault::KillLeader | FailoverFault::KillFollower => {
                servers.program(index).kill()?;
            }
            FailoverFault::StopLeader => servers.program(index).signal(Signal::SIGSTOP)?,
            FailoverFault::CutLeader => servers.network().cut(index, Cut::Hosts)?,
            FailoverFault::IsolateLeader => servers.network().cut(index, Cut::All)?,
        }
        let granted_us = self.probe.wait_for_grant(index)?;
        load.pass(self.span(FAULT_MS))?;
        match kind {
            FailoverFault::KillLeader | FailoverFault::KillFollower => {
                servers.start_again(index)?;
            }
            FailoverFault::StopLeader => servers.program(index).signal(Signal::SIGCONT)?,
            FailoverFault::CutLeader | FailoverFault::IsolateLeader => {
                servers.network().heal(index)?;
            }
        }
        let leader = servers.wait_until_whole()?;
        // The load goes on until the clients have reconnected, and have measured how long they
        // waited.
        load.pass(self.span(LOAD_MS))?;
        let has_moved = leader != self.leader;
        self.leader = leader;
        let places = servers.places();
        let name = format!("{kind:?} at {}", places[index]);
        let is_kill = matches!(kind, FailoverFault::KillLeader | FailoverFault::KillFollower);
        let ended = is_kill.then(|| "the process ended".to_owned());
        let moved = has_moved.then(|| format!("{} leads", places[leader]));
        let effects = ended.into_iter().chain(moved).collect();
        let fault = Fault { name, begin_us, end_us: now_us(), effects };
        Ok(InjectedFault { kind, fault, granted_us, has_moved })
    }

    fn span(&mut self, (least_ms, most_ms): (i64, i64)) -> Duration {
        Duration::from_micros(self.random.between(least_ms * 1000, most_ms * 1000).unsigned_abs())
    }
}
