//! Memory for many small things, straight from the system: it goes back there at once, wherever it
//! stands among other memory, and never in pieces so large that others have to wait for it.

use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// So many bytes, which are zero at first and begin where a page does. Those that nobody has
/// touched take no memory.
#[derive(Debug)]
pub struct Pages(MmapMut);

impl Pages {
    /// As many as there are to be. Where there is no memory the process ends, as with any other.
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
