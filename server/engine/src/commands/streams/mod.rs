//! The commands for streams: `entries` adds, reads and trims, `reads` waits for entries, `groups`
//! has consumer groups, `pending` what was delivered and not acknowledged, `info` what `XINFO`
//! shows.

pub mod entries;
pub mod groups;
pub mod info;
pub mod pending;
pub mod reads;
