//! The result of a run and its output formats.
//!
//! An [`Outcome`] is the result of one case or property, a [`Report`] that of a run with its counts
//! and its summary, a [`Table`] the totals. `verdict.rs` answers three questions from the
//! properties, and a [`Group`] has the failed cases of one cause. [`Report::write`] formats it for
//! people and programs: within one schema number, the JSON report only gains fields.
//!
//! Begin with `results.rs`.

mod format;
mod groups;
mod json;
mod junit;
mod markdown;
mod outcome;
mod results;
mod table;
mod text;
mod verdict;

pub use format::Format;
pub use groups::Group;
pub use outcome::{Failure, Outcome, PROPERTIES, Question, Verdict};
pub use results::Report;
pub use table::{Row, Score, Table};
