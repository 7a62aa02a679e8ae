//! Memory for many small values, directly from the operating system. It is returned there at once,
//! wherever it lies, and in pieces small enough that freeing one delays nothing else.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// A page-aligned block of bytes, zero at first. Pages that have not been touched take no memory.
#[derive(Debug)]
pub struct Pages(MmapMut);

impl Pages {
    /// Allocates this many bytes. If there is no memory, the process ends, as for any other
    /// allocation.
    #[cold]
    pub fn new(bytes: usize) -> Pages {
        match MmapMut::map_anon(bytes) {
            Ok(memory) => Pages(memory),
            Err(_) => handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>())),
        }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
