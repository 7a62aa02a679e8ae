//! What is on disk before it is seen: the effects of each unit on their way to a log, and what a
//! restart needs to know.
//!
//! - `commit` ends a unit: it passes its effects to all consumers. Begin here.
//! - `unit_log` numbers units for a log, and finds the unit that a reply depends on; `log_waits`
//!   has the clients that wait for one.
//! - `lease_ceiling` is the time until which leases were granted; `readiness` has the role of the
//!   server, on which it depends whether commands are served, and the restart guard, which lasts
//!   until that time. `key_groups` are the groups of keys that make it long.
//! - `persistence` is what `INFO` shows of the log and of snapshots.
//!
//! Rule: output that shows a change waits until the log has released the change's unit.

pub(crate) mod commit;
pub mod key_groups;
pub mod lease_ceiling;
pub(crate) mod log_waits;
pub mod persistence;
pub mod readiness;
pub mod unit_log;
