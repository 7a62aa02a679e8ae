//! The outcome of a run: figures, ratios with their intervals, tables, plots and pages.
//!
//! [`figures`] keeps what was measured, [`statistics`] estimates ratios from figures of the same
//! round, [`tables`] has the tables of all outputs, [`page`] writes the pages with their [`plots`],
//! and [`text`] the other formats. A page is a function of the [`saved`] figures and of the costs
//! of a timer, which [`wheel`] reads from a bench.
//!
//! Begin with `figures.rs`.

pub(crate) mod figures;
pub(crate) mod page;
pub(crate) mod plots;
pub(crate) mod saved;
pub(crate) mod statistics;
pub(crate) mod tables;
pub(crate) mod text;
pub(crate) mod wheel;
