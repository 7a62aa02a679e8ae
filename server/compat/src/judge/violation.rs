//! Violations of the rules of a lock.

use std::fmt;

/// A violation of the rules of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its kind.
    pub kind: ViolationKind,
    /// The lock.
    pub lock: String,
    /// The event that proves it, by its number in the history.
    pub event: usize,
    /// The time of the event.
    pub at_us: i64,
}

/// The kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ViolationKind {
    /// More clients held the lock at once than the rules allow.
    DoubleGrant,
    /// A holder was refused within its lease.
    EarlyLoss,
    /// The lock was still held after its lease had ended.
    LateFree,
    /// A free lock was refused.
    FreeRefused,
    /// The lock was released, and a waiting client did not get it in time.
    LostWakeUp,
    /// A client renewed or released a lock that it did not hold.
    NotHolder,
    /// A later holder did not get a higher token.
    Token,
    /// The count of holds is not the number of acquisitions minus the number of releases.
    Count,
    /// A client that had asked later got the lock earlier.
    OutOfTurn,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViolationKind::DoubleGrant => "the lock is held twice at once",
            ViolationKind::EarlyLoss => "a holder is refused before its lease has ended",
            ViolationKind::LateFree => "the lock is held after its lease has ended",
            ViolationKind::FreeRefused => "a free lock is refused",
            ViolationKind::LostWakeUp => {
                "the lock was released, and a waiting client does not get it"
            }
            ViolationKind::NotHolder => {
                "a client that does not hold the lock renews or releases it"
            }
            ViolationKind::Token => "a later holder does not get a higher fencing token",
            ViolationKind::Count => "the count of holds is wrong",
            ViolationKind::OutOfTurn => "a client that asked later gets the lock earlier",
        })
    }
}
