//! The title of the process: what `ps` shows in place of the arguments, which may hold a password
//! for every user of the machine to read.
//!
//! The kernel shows the memory in which the process was given its arguments. Nothing but
//! `std::env::args` reads that, which this program does once, before; so what stands there can be
//! replaced. The memory is written through `/proc/self/mem`, which needs no unsafe code. Other
//! systems than Linux go on showing the arguments.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use crate::launch;

/// The title of one process.
pub(crate) struct Title {
    program: String,
    /// Whether the arguments must not stay.
    hides_secret: bool,
}

impl Title {
    /// The title of a process that was started with these arguments, its name first. Hides them at
    /// once if there may be a password among them.
    pub(crate) fn of(args: &[String]) -> Title {
        let program = args.first().cloned().unwrap_or_default();
        let title = Title { program, hides_secret: launch::names_secret(args) };
        title.set_secretly("");
        title
    }

    /// Shows `what` behind the name of the program. Arguments without a password stay if they
    /// leave too little room for it.
    pub(crate) fn set(&self, what: &str) {
        let Ok(memory) = Arguments::find() else { return };
        let title = format!("{} {what}", self.program);
        if title.len() < memory.len {
            let _ = memory.write(title.trim_end());
        } else if self.hides_secret {
            let _ = memory.write(&self.program);
        }
    }

    /// As [`Title::set`], if there may be a password among the arguments.
    pub(crate) fn set_secretly(&self, what: &str) {
        if self.hides_secret {
            self.set(what);
        }
    }
}

/// The memory of the arguments.
struct Arguments {
    start: u64,
    len: usize,
}

impl Arguments {
    fn find() -> io::Result<Arguments> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        // The program's name, in parentheses, may hold anything. The third field comes behind it.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |number: usize| -> Option<u64> {
            behind_name.split_whitespace().nth(number - 3)?.parse().ok()
        };
        match (field(48), field(49)) {
            (Some(start), Some(end)) if 0 < start && start < end => {
                Ok(Arguments { start, len: (end - start) as usize })
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// What is left of the memory becomes zero: its last byte has to be, or the kernel would take
    /// the title for longer than it is.
    fn write(&self, title: &str) -> io::Result<()> {
        let mut bytes = vec![0; self.len];
        let shown = title.len().min(self.len - 1);
        bytes[..shown].copy_from_slice(&title.as_bytes()[..shown]);
        File::options().write(true).open("/proc/self/mem")?.write_all_at(&bytes, self.start)
    }
}
