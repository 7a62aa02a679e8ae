//! The title of the process: the text that `ps` shows instead of the arguments, which may contain a
//! password that every user of the machine could read.
//!
//! The kernel shows the memory that holds the arguments of the process. Only `std::env::args` reads
//! that memory, once and before this, so the memory can be overwritten. It is written through
//! `/proc/self/mem`, which needs no unsafe code. Systems other than Linux still show the arguments.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::launch;

/// The title of one process.
pub(crate) struct Title {
    program: String,
    /// Whether the arguments must be hidden.
    hides_secret: bool,
}

impl Title {
    /// The title of a process that was started with these arguments, its name first. Hides them at
    /// once if they may contain a password.
    pub(crate) fn of(args: &[String]) -> Title {
        let program = args.first().cloned().unwrap_or_default();
        let title = Title { program, hides_secret: launch::names_secret(args) };
        title.set_if_secret("");
        title
    }

    /// Shows `text` after the name of the program. If the memory is too short for it, arguments
    /// without a password stay.
    pub(crate) fn set(&self, text: &str) {
        let Ok(memory) = Arguments::find() else { return };
        let title = format!("{} {text}", self.program);
        if title.len() < memory.len {
            let _ = memory.write(title.trim_end());
        } else if self.hides_secret {
            let _ = memory.write(&self.program);
        }
    }

    /// As [`Title::set`], but only if the arguments may contain a password.
    pub(crate) fn set_if_secret(&self, text: &str) {
        if self.hides_secret {
            self.set(text);
        }
    }
}

/// Hides the arguments of a process that has read a password from them.
pub(crate) fn hide_arguments() {
    let program = std::env::args_os().next().unwrap_or_default();
    if let Ok(memory) = Arguments::find() {
        let _ = memory.write(&program.to_string_lossy());
    }
}

/// The memory that holds the arguments.
struct Arguments {
    start: u64,
    len: usize,
}

impl Arguments {
    fn find() -> io::Result<Arguments> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        // The program's name, in parentheses, may contain any text. The third field follows it.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| -> Option<u64> {
            after_name.split_whitespace().nth(number - 3)?.parse().ok()
        };
        match (field(48), field(49)) {
            (Some(start), Some(end)) if 0 < start && start < end => {
                Ok(Arguments { start, len: (end - start) as usize })
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Writes the title and fills the rest with zeros. The last byte must be zero, or the kernel
    /// would show more than the title.
    fn write(&self, title: &str) -> io::Result<()> {
        let mut bytes = vec![0; self.len];
        let shown = title.len().min(self.len - 1);
        bytes[..shown].copy_from_slice(&title.as_bytes()[..shown]);
        File::options().write(true).open("/proc/self/mem")?.write_all_at(&bytes, self.start)
    }
}
