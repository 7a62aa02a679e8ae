//! Values as `DUMP` writes them and `RESTORE` reads them: Redis's own format, so that a key can
//! move between servers.
//!
//! `payload` seals and opens payloads; `read` and `write` are the values in them.
//!
//! Invariant: reading any bytes ends with a value or an error, in time and memory bounded by their
//! number.

mod legacy;
mod listpack;
mod lzf;
mod payload;
mod read;
mod stream;
mod write;

pub use payload::{SEAL_BYTES, seal, seal_as, unseal};
use payload::{encoding, form, node};
pub use read::{Forms, Malformed, read, read_libraries};
pub use write::{write, write_libraries};
