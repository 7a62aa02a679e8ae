//! Servers with seeded faults, which show that the compatibility suite finds faults.
//!
//! A [`FaultyServer`] is our own engine behind a small TCP server of the tests, with one
//! [`SeededFault`], or with none as the control, which must be green. `it/compat_faults.rs` runs
//! the suite on each and expects that the cases and properties named in the table fail. To try one
//! by hand:
//!
//! ```text
//! cargo run -p lockwheel-tools --bin faulty -- eval-lets-others-in
//! lockwheel compat redis://127.0.0.1:PORT
//! ```
//!
//! # How to add a fault
//!
//! 1. Write the fault as a function in the file of its family (`blocking`, `leases`, `messages`,
//!    `replies`, `scripts`, `transactions`). It gets the [`FaultyEngine`], through which the engine
//!    and its connections can be reached, and a [`Request`], and returns the answer;
//!    [`FaultyEngine::run`] gives the answer of a correct server.
//! 2. Add a row to the file's `FAULTS`: a name, a sentence, and the cases or properties that must
//!    find it, as parts of their names. If none finds it, the suite lacks a case: write that first.
//!    The cases named for faults of other families must not fail, except those in `also`. If it
//!    breaks a promise of the documentation, name that in `promises`.
//!
//! Unlike the rest of the harness, this module uses the server's own parser and engine, into which
//! the faults are put. The suite that judges them uses neither.

mod blocking;
mod connections;
mod faulty_engine;
mod leases;
mod messages;
mod replies;
mod scripts;
mod server;
mod transactions;

use lockwheel_engine::sessions::ClientId;

pub use faulty_engine::{Answer, FaultyEngine, Request, SEED};
pub use replies::SLOW;
pub use server::{FaultyServer, Inputs};

/// A fault of a server.
#[derive(Debug)]
pub struct SeededFault {
    /// Its name.
    pub name: &'static str,
    /// A description.
    pub description: &'static str,
    /// The cases and properties that must fail because of it, as parts of their names.
    pub found_by: &'static [&'static str],
    /// Cases of other subjects that fail because of it too.
    pub also: &'static [&'static str],
    /// The promises that it breaks: their identifiers in the documentation.
    pub promises: &'static [&'static str],
    /// Replaces the handling of a request. While `MULTI` queues, it is called for `EXEC` and
    /// `DISCARD` only.
    pub run: Option<Run>,
    /// Replaces a message that is sent to a client.
    pub rewrite_message: Option<RewriteMessage>,
    /// Replaces the handling of a closed connection.
    pub on_disconnect: Option<fn(&mut FaultyEngine, ClientId)>,
}

/// Handles a request.
pub type Run = fn(&mut FaultyEngine, &Request) -> Answer;

/// Replaces a frame that is sent to a client.
pub type RewriteMessage = fn(&mut FaultyEngine, ClientId, &[u8]) -> Vec<u8>;

impl SeededFault {
    /// The defaults of a row.
    const NONE: SeededFault = SeededFault {
        name: "",
        description: "",
        found_by: &[],
        also: &[],
        promises: &[],
        run: None,
        rewrite_message: None,
        on_disconnect: None,
    };
}

/// Every fault, by family.
pub fn families() -> [&'static [SeededFault]; 6] {
    [
        replies::FAULTS,
        leases::FAULTS,
        scripts::FAULTS,
        transactions::FAULTS,
        blocking::FAULTS,
        messages::FAULTS,
    ]
}

/// Every fault.
pub fn faults() -> Vec<&'static SeededFault> {
    families().into_iter().flatten().collect()
}
