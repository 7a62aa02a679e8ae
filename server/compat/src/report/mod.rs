//! The result of a run and its output formats.
//!
//! An [`Outcome`] is the result of one case or property, a [`Report`] that of a run with its counts
//! and its summary, a [`Table`] the totals. [`Report::write`] formats it for people and programs:
//! within one schema number, the JSON report only gains fields.
//!
//! Begin with `results.rs`.

mod format;
mod json;
mod junit;
mod markdown;
mod outcome;
mod results;
mod table;
mod text;

pub use format::Format;
pub use outcome::{Failure, Outcome, PROPERTIES, Verdict};
pub use results::Report;
pub use table::{Row, Score, Table};
