//! One integration binary, one file per property.

mod atomicity;
mod boundaries;
mod busy;
mod cli;
mod clock;
mod compat;
mod compat_command;
mod compat_faults;
mod daemon;
mod differential;
mod embedding;
mod faults;
mod fuzz;
mod journal;
mod limits;
mod protocol;
mod redis_rs;
mod run;
mod seed_000;
mod seed_002;
mod seed_003;
mod seed_004;
mod storms;
mod tiers;
mod turns;
mod waiters;
