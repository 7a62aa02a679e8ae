//! Effects: the changes of the state, as data. The [`Writer`](super::writer::Writer) records them
//! while a unit runs; applied in order to the state before the unit, they give the state after it.
//!
//! `effect` has the table of all effects; `codec` is their byte form.
//!
//! Rule: the size of an effect is proportional to the change, not to the value.

pub(in crate::store) mod codec;
mod effect;
pub mod image;

#[cfg(any(test, feature = "defects"))]
pub use effect::TAGS;
pub use effect::{Effect, EffectIter, Effects, Pairs, Place};
