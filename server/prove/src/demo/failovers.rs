//! Faults of the primary of replicated servers, so that another server is promoted.

use std::time::Duration;

use lockwheel_compat::time;
use nix::sys::signal::Signal;

use super::place::Place;
use super::program::Program;
use crate::clock::now_us;
use crate::faults::{FaultRun, FaultSource};
use crate::record::Fault;

/// Time with load between two faults.
const LOAD: Duration = Duration::from_secs(3);

/// How long a stopped primary stays stopped after another server was promoted.
const AFTER_PROMOTION: Duration = Duration::from_secs(1);

/// How long the others are stopped before the primary is killed.
pub(super) const LAG: Duration = Duration::from_millis(300);

/// The longest time until another server is promoted.
const PROMOTION_LIMIT: Duration = Duration::from_secs(20);

/// The longest time until all servers work together again.
pub(super) const WHOLE_LIMIT: Duration = Duration::from_secs(60);

/// Servers one of which is the primary.
pub trait Servers: Send {
    /// Where the servers are.
    fn places(&self) -> &[Place];

    /// The process of a server.
    fn program(&mut self, index: usize) -> &mut Program;

    /// Kills a server when the others lack what it has done last. Returns how, for the name of the
    /// fault.
    ///
    /// # Errors
    /// If it has ended before.
    fn kill_ahead(&mut self, index: usize) -> Result<String, String>;

    /// Starts a server again after it was killed, as a replica if another one is the primary.
    ///
    /// # Errors
    /// If it cannot be started.
    fn start_again(&mut self, index: usize) -> Result<(), String>;

    /// The server that is the primary, as any server or sentinel says, unless it is `former`.
    fn primary_other_than(&self, former: usize) -> Option<usize>;

    /// The primary, if all servers work together.
    fn primary_of_all(&self) -> Option<usize>;

    /// Checks that no process has ended by itself.
    ///
    /// # Errors
    /// If one has.
    fn check_alive(&mut self) -> Result<(), String>;
}

/// What happens to the primary.
#[derive(Clone, Copy, Debug)]
pub(super) enum PrimaryFault {
    /// It is killed. It is started again after another server was promoted.
    Kill,
    /// It is stopped until another server was promoted, and somewhat longer.
    Stop,
    /// It is killed and started again at once.
    Restart,
}

/// Injects faults in turn.
pub(super) struct Failovers<S> {
    servers: S,
    faults: &'static [PrimaryFault],
    next: usize,
    /// The primary, if all servers work together before the next fault.
    primary: Option<usize>,
}

/// Kills the primary after the others were stopped for a while, so that they lack what it has done
/// meanwhile. Then they go on. `after_stop` runs when they have stopped.
pub(super) fn kill_with_lag<T>(
    programs: &mut [Program],
    primary: usize,
    after_stop: impl FnOnce() -> T,
) -> Result<T, String> {
    let count = programs.len();
    let signal_others = |programs: &mut [Program], signal| {
        let mut others = (0..count).filter(|index| *index != primary);
        others.try_for_each(|index| programs[index].signal(signal))
    };
    let stopped = signal_others(programs, Signal::SIGSTOP);
    let result = after_stop();
    time::sleep(LAG);
    let killed = programs[primary].kill();
    signal_others(programs, Signal::SIGCONT)?;
    stopped.and(killed).map(|()| result)
}

impl<S: Servers> Failovers<S> {
    pub(super) fn new(servers: S, faults: &'static [PrimaryFault]) -> Failovers<S> {
        Failovers { servers, faults, next: 0, primary: None }
    }

    fn fail(
        &mut self,
        fault: PrimaryFault,
        primary: usize,
        run: &FaultRun,
    ) -> Result<String, String> {
        let id = self.servers.program(primary).id();
        let server = format!("the primary {} (process {id})", self.servers.places()[primary]);
        match fault {
            PrimaryFault::Kill => {
                let manner = self.servers.kill_ahead(primary)?;
                let promoted = self.wait_for_promotion(primary, run);
                self.servers.start_again(primary)?;
                Ok(format!("SIGKILL to {server}{manner}; started again after {promoted}"))
            }
            PrimaryFault::Restart => {
                let manner = self.servers.kill_ahead(primary)?;
                self.servers.start_again(primary)?;
                Ok(format!("SIGKILL to {server}{manner}; started again at once"))
            }
            PrimaryFault::Stop => {
                self.servers.program(primary).signal(Signal::SIGSTOP)?;
                let promoted = self.wait_for_promotion(primary, run);
                run.pause(AFTER_PROMOTION);
                self.servers.program(primary).signal(Signal::SIGCONT)?;
                let span_ms = AFTER_PROMOTION.as_millis();
                Ok(format!("SIGSTOP to {server}; SIGCONT {span_ms} ms after {promoted}"))
            }
        }
    }

    /// Waits until another server is the primary, and says which.
    fn wait_for_promotion(&self, former: usize, run: &FaultRun) -> String {
        let promoted = run.wait_for(PROMOTION_LIMIT, || self.servers.primary_other_than(former));
        match promoted {
            Some(index) => format!("{} was promoted", self.servers.places()[index]),
            None if run.is_over() => "the end of the run".to_owned(),
            None => format!("{} s in which no server was promoted", PROMOTION_LIMIT.as_secs()),
        }
    }
}

impl<S: Servers> FaultSource for Failovers<S> {
    fn wait(&mut self, run: &FaultRun) -> bool {
        run.pause(LOAD);
        self.primary = run.wait_for(WHOLE_LIMIT, || self.servers.primary_of_all());
        !run.is_over()
    }

    fn inject(&mut self, run: &FaultRun) -> Result<Fault, String> {
        self.servers.check_alive()?;
        let primary = self.primary.take().ok_or("the servers do not work together again")?;
        let fault = self.faults[self.next % self.faults.len()];
        self.next += 1;
        let begin_us = now_us();
        let name = self.fail(fault, primary, run)?;
        Ok(Fault { name, begin_us, end_us: now_us(), effects: Vec::new() })
    }
}
