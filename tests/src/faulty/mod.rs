//! Servers with seeded faults: what shows that the compatibility suite can see.
//!
//! A [`FaultyServer`] is our own engine behind a small TCP server of the tests, with one [`Fault`]
//! switched on, or none: the control, which must be green. `it/compat_faults.rs` runs the suite on
//! each and expects that the cases and properties named in the table fail. To look at one by hand:
//!
//! ```text
//! cargo run -p lockwheel-tests --bin faulty -- eval-lets-others-in
//! lockwheel compat redis://127.0.0.1:PORT
//! ```
//!
//! # How to add a fault
//!
//! 1. Write what is wrong as a function in the file of its family (`blocking`, `leases`,
//!    `messages`, `replies`, `scripts`, `transactions`). It gets the `World`, in which
//!    the engine and everything that is connected to it can be reached, and a [`Request`], and
//!    says what is answered; [`World::run`] is what a right server does.
//! 2. Add a row to the file's `FAULTS`: a name, a sentence, and who must find it: words out of the
//!    names of cases or properties. If nobody finds it, the suite lacks a case: write that first.
//!    The cases named for faults of other families must not fail, but for those that the row names
//!    as `also`.
//!
//! Here, unlike in the rest of the harness, the server's own parser and engine are used: it is
//! them that the faults are put into. The suite that judges them uses neither.

mod blocking;
mod crowd;
mod leases;
mod messages;
mod replies;
mod scripts;
mod server;
mod transactions;
mod world;

use lockwheel_engine::session::ClientId;

pub use server::FaultyServer;
pub use world::{Answer, Request, World};

/// Something a server does wrong.
#[derive(Debug)]
pub struct Fault {
    /// What it is called.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// The cases and properties that must fail because of it: words out of their names.
    pub found_by: &'static [&'static str],
    /// What is not about it and fails because of it all the same.
    pub also: &'static [&'static str],
    /// What is done in the place of a request. Not asked while `MULTI` queues.
    pub run: Option<Run>,
    /// What is sent in the place of something a client did not ask for just now: a message.
    pub tell: Option<Tell>,
    /// What is done when a client has gone, in the place of forgetting it.
    pub leave: Option<fn(&mut World, ClientId)>,
}

/// What is done in the place of a request.
pub type Run = fn(&mut World, &Request) -> Answer;

/// What is sent to a client in the place of a frame.
pub type Tell = fn(&mut World, ClientId, &[u8]) -> Vec<u8>;

impl Fault {
    /// What a row is completed with.
    const NONE: Fault =
        Fault { name: "", what: "", found_by: &[], also: &[], run: None, tell: None, leave: None };
}

/// Every fault, by family.
pub fn families() -> [&'static [Fault]; 6] {
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
pub fn faults() -> Vec<&'static Fault> {
    families().into_iter().flatten().collect()
}
