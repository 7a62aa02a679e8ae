//! The log of a server on disk: what its engine has changed, in order, so that a new process can
//! rebuild the state.
//!
//! The engine's changes are bytes here, numbered by unit. A [`Position`] is the number of a unit:
//! the log up to a position contains all units up to it. The log consists of *segments*, files of
//! *frames* with checksums; a *snapshot* is a file with the state at one position, which replaces
//! all segments before it. `docs/log-format.md` describes the files.
//!
//! The package has no threads, sockets or clocks. It accesses files through the trait [`Disk`]
//! only, so that tests can replace the disk by one that fails.

pub mod ceiling;
pub mod directory;
pub mod disk;
pub mod files;
pub mod frame;
pub mod limits;
pub mod marker;
pub mod names;
mod position;
pub mod reader;
pub mod recovery;
pub mod repair;
pub mod replicated;
pub mod restore;
pub mod small_file;

pub use directory::Directory;
pub use disk::{Disk, DiskFile};
pub use position::Position;
