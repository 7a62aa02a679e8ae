//! The report of a run: the verdict first, then the worst case as a story, then what was done.
//!
//! A [`Report`] has what a run has found. [`Report::write`] formats it for people and programs.
//! `verdict.rs` has the sentences and figures of the verdict, `tables.rs` the cells of all tables,
//! `words.rs` and `times.rs` how numbers, times and text of servers are shown: the formats differ
//! only in how they arrange them. `timeline.rs` draws the picture of the HTML format.
//!
//! Begin with `results.rs`.

mod columns;
mod format;
mod html;
mod json;
mod junit;
mod results;
#[cfg(test)]
mod sample;
mod tables;
mod text;
mod timeline;
mod times;
mod verdict;
mod words;

pub use format::Format;
pub use results::{Case, HoldSpan, Report, StoryLine, Totals};
