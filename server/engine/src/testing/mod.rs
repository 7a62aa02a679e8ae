//! What only tests use: `stage` plays conversations with an engine under a simulated clock, `model`
//! and `lock_model` compare it with models; the other files are tests of the engine as a whole.

mod database_tests;
mod deadline_tests;
mod effect_tests;
mod lock_model;
mod model;
mod safety_tests;
mod stage;
mod table_tests;

pub(crate) use stage::{
    Stage, check, check_events, matches, render, render_all, replies, split_outside_quotes, words,
};
