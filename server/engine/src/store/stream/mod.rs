//! The stream type: entries in the order of their ids, and the consumer groups that read them.
//!
//! Invariant: an id that was given out is never given out again, whatever is deleted; so a stream
//! remains when its last entry is deleted.

mod encoded;
mod entries;
pub mod group;
pub mod id;
pub mod nodes;

pub use entries::{Entries, Entry, Extent, Keep, Names, Stream, Trim};
use id::StreamId;
