//! The faults.

use std::time::Duration;

use clap::ValueEnum;
use lockwheel_compat::random::Random;
use lockwheel_tests::load;
use lockwheel_tests::load::clients::Load;
use lockwheel_tests::load::now_us;
use nix::sys::signal::Signal;

use crate::network::Cut;
use crate::probe::Probe;
use crate::servers::Servers;

/// The load between the end of a fault and the next one.
const LOAD_MS: (i64, i64) = (200, 800);

/// How long a fault lasts after another server serves. A former leader that comes back later has
/// older requests to answer.
const LAST_MS: (i64, i64) = (0, 2_000);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Fault {
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

impl Fault {
    /// Number of faults of this kind among twelve.
    fn share(self) -> usize {
        match self {
            Fault::KillLeader => 5,
            Fault::StopLeader | Fault::CutLeader | Fault::IsolateLeader => 2,
            Fault::KillFollower => 1,
        }
    }

    fn needs_divisible_network(self) -> bool {
        matches!(self, Fault::CutLeader | Fault::IsolateLeader)
    }
}

/// A fault that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    pub(crate) span: load::Fault,
    /// When another server granted a lock.
    pub(crate) granted_us: i64,
    /// Whether another server leads since.
    pub(crate) has_moved: bool,
}

/// Draws faults.
pub(crate) struct Faults {
    faults: Vec<Fault>,
    random: Random,
    probe: Probe,
    leader: usize,
}

impl Faults {
    /// Faults of these kinds, or of all.
    pub(crate) fn new(
        servers: &mut dyn Servers,
        kinds: &[Fault],
        random: Random,
    ) -> Result<Faults, String> {
        let kinds = if kinds.is_empty() { Fault::value_variants() } else { kinds };
        let is_divisible = servers.network().is_divisible();
        let possible = kinds.iter().filter(|it| is_divisible || !it.needs_divisible_network());
        let faults: Vec<Fault> =
            possible.flat_map(|fault| std::iter::repeat_n(*fault, fault.share())).collect();
        if faults.iter().all(|fault| *fault == Fault::KillFollower) {
            return Err("no fault moves the leader".to_owned());
        }
        let probe = Probe::new(servers.addresses());
        Ok(Faults { faults, random, probe, leader: servers.wait_until_whole()? })
    }

    /// Has some time with load pass, and then a fault.
    pub(crate) fn inject(
        &mut self,
        servers: &mut dyn Servers,
        load: &mut Load,
    ) -> Result<Failed, String> {
        load.pass(self.span(LOAD_MS))?;
        let fault = *self.random.pick(&self.faults);
        let index = match fault {
            Fault::KillFollower => (self.leader + 1) % servers.addresses().len(),
            _ => self.leader,
        };
        let begin_us = now_us();
        match fault {
            Fault::KillLeader | Fault::KillFollower => servers.kill(index)?,
            Fault::StopLeader => servers.signal(index, Signal::SIGSTOP)?,
            Fault::CutLeader => servers.network().cut(index, Cut::Hosts)?,
            Fault::IsolateLeader => servers.network().cut(index, Cut::All)?,
        }
        let granted_us = self.probe.wait_for_grant(index)?;
        load.pass(self.span(LAST_MS))?;
        match fault {
            Fault::KillLeader | Fault::KillFollower => servers.start_again(index)?,
            Fault::StopLeader => servers.signal(index, Signal::SIGCONT)?,
            Fault::CutLeader | Fault::IsolateLeader => servers.network().heal(index)?,
        }
        let leader = servers.wait_until_whole()?;
        // So that clients are there again, and their times are known.
        load.pass(self.span(LOAD_MS))?;
        let has_moved = leader != self.leader;
        self.leader = leader;
        let span = load::Fault { begin_us, end_us: now_us() };
        Ok(Failed { fault, span, granted_us, has_moved })
    }

    fn span(&mut self, (least_ms, most_ms): (i64, i64)) -> Duration {
        Duration::from_micros(self.random.between(least_ms * 1000, most_ms * 1000).unsigned_abs())
    }
}
