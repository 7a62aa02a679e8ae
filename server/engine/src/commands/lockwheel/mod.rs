//! The command `LOCKWHEEL`: `rows` has the rows of all subcommands, the clock, the guard and
//! faults; `journal` shows the journal and its checks, `locks` the lock view.

mod journal;
mod locks;
pub mod rows;
