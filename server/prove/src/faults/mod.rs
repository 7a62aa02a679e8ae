//! Faults during a run: what is done to the servers while clients use locks on them.
//!
//! A [`FaultSource`] decides when the next fault is due and injects it. The user reports faults by
//! hand ([`Manual`]), commands inject them ([`Hooks`]), or processes are stopped ([`Processes`]).
//! The servers of a demo have sources of their own, in `demo/`. Whatever a source does to a process
//! of the user is undone, also if the run ends early, this program panics or is killed
//! (`guard.rs`).
//!
//! Begin with the trait; a [`FaultRun`] is what sources wait with.

use crate::record::Fault;

pub(crate) mod guard;
mod hooks;
mod manual;
mod processes;
mod run;
mod schedule;
mod text;

pub use hooks::Hooks;
pub use manual::Manual;
pub use processes::Processes;
pub use run::FaultRun;

/// A source of faults. It runs on a thread of its own.
pub trait FaultSource: Send {
    /// Waits until the next fault is due; false if there is none any more or the run ends.
    fn wait(&mut self, run: &FaultRun) -> bool;

    /// Injects a fault and undoes it, also if the run ends meanwhile. The run fills in `effects`.
    /// What goes wrong with it is part of its name; an error means that there was no fault.
    fn inject(&mut self, run: &FaultRun) -> Result<Fault, String>;
}
