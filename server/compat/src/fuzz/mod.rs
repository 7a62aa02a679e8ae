//! `--fuzz`: plays random sequences of commands on the server under test and on a reference. A
//! difference is shortened and printed as a case.
//!
//! An [`episode`] is a conversation of several clients. [`grammar`] reads the forms of the commands
//! from `COMMAND DOCS` of the server under test, and [`rules`] selects the [`kinds`] of their
//! values, which [`draw`] draws. [`generate`] makes episodes of them, and [`arguments`] makes
//! episodes with random arguments; `safety.rs` refuses what would not mean the same to two servers.
//!
//! [`run`] plays an episode: `side.rs` sends and reads on one server, `agree.rs` compares. Replies
//! are equal but for the parts in [`mod@reference`] and the [`known`] differences. [`shrink`]
//! shortens an episode with a difference.
//!
//! The same seed gives the same commands. Begin with `fuzzing.rs`.

mod agree;
pub mod arguments;
mod as_case;
pub mod draw;
pub mod episode;
mod fuzzing;
pub mod generate;
pub mod grammar;
pub mod kinds;
pub mod known;
pub mod reference;
mod report;
pub mod rules;
pub mod run;
mod safety;
mod script;
pub mod shrink;
pub mod side;

pub use episode::Manner;
pub use fuzzing::{Options, Progress, fuzz};
pub use report::{FoundDifference, Report};
