//! The directory of a server's log, and a library in it that delays each flush of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockwheel_comparison::Outcome;

/// The source of the library that delays flushes.
const SOURCE: &str = include_str!("delayed_flush.c");
const LIBRARY: &str = "delayed_flush.so";

/// A directory, removed when the value is dropped.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    path: PathBuf,
    /// Its path for the server, which may run in another root directory.
    server_path: PathBuf,
    flush_delay: Duration,
}

impl LogDirectory {
    /// Creates an empty directory for the server that is started with these words. Each of its
    /// flushes takes longer by the delay.
    pub(crate) fn create(words: &[String], flush_delay: Duration) -> Outcome<LogDirectory> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockwheel-compare-{}-{number}", std::process::id());
        let server_path = std::env::temp_dir().join(name);
        let path = match words {
            [program, root, ..] if program == "chroot" => {
                PathBuf::from(root).join(server_path.strip_prefix("/").unwrap_or(&server_path))
            }
            _ => server_path.clone(),
        };
        fs::create_dir_all(&path)?;
        let directory = LogDirectory { path, server_path, flush_delay };
        if !flush_delay.is_zero() {
            fs::write(directory.path.join(LIBRARY), library()?)?;
        }
        Ok(directory)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the directory for the server.
    pub(crate) fn server_path(&self) -> &Path {
        &self.server_path
    }

    /// The command of a server, changed so that its flushes are delayed.
    pub(crate) fn delayed(&self, words: &[String]) -> Vec<String> {
        let mut words = words.to_vec();
        if self.flush_delay.is_zero() {
            return words;
        }
        // Only the server is to load the library: `chroot` does not see it under this path.
        let place = if words.first().is_some_and(|word| word == "chroot") { 2 } else { 0 };
        let added = [
            "env".to_owned(),
            format!("LD_PRELOAD={}", self.server_path.join(LIBRARY).display()),
            format!("FLUSH_DELAY_MICROSECONDS={}", self.flush_delay.as_micros()),
        ];
        words.splice(place.min(words.len())..place.min(words.len()), added);
        words
    }

    /// The size of all files of the log.
    pub(crate) fn bytes(&self) -> Outcome<u64> {
        bytes_within(&self.path)
    }
}

impl Drop for LogDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn bytes_within(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_within(&entry.path())?,
            false if entry.file_name() == LIBRARY => 0,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}

/// The compiled library.
fn library() -> Outcome<&'static [u8]> {
    static COMPILED: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    let compiled = COMPILED.get_or_init(|| compile().map_err(|error| error.to_string()));
    compiled.as_deref().map_err(|error| error.clone().into())
}

fn compile() -> Outcome<Vec<u8>> {
    let folder = std::env::temp_dir().join(format!("lockwheel-compare-{}-c", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (source, library) = (folder.join("delayed_flush.c"), folder.join(LIBRARY));
    fs::write(&source, SOURCE)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-o"]).args([&library, &source]);
    let output = compiler.output().map_err(|error| format!("cc: {error}"))?;
    let bytes = fs::read(&library);
    let _ = fs::remove_dir_all(&folder);
    match bytes {
        Ok(bytes) if output.status.success() => Ok(bytes),
        _ => Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LogDirectory;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn directory_is_removed_when_dropped() {
        let directory = LogDirectory::create(&words("server"), Duration::ZERO).expect("a folder");
        let path = directory.path().to_owned();
        std::fs::create_dir(path.join("log")).expect("a folder");
        std::fs::write(path.join("log/file"), "four").expect("a file");
        assert_eq!(directory.bytes().expect("the size"), 4);
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn library_is_loaded_by_the_server_only() {
        let delay = Duration::from_micros(250);
        let directory = LogDirectory::create(&words("server"), delay).expect("a folder");
        assert_eq!(directory.bytes().expect("the size"), 0);
        let delayed = directory.delayed(&words("chroot /root server a"));
        assert_eq!(delayed[..3], words("chroot /root env"));
        assert!(delayed[3].starts_with("LD_PRELOAD=/"), "{delayed:?}");
        assert_eq!(delayed[4..], words("FLUSH_DELAY_MICROSECONDS=250 server a"));
        assert_eq!(directory.delayed(&words("server a"))[3..], words("server a"));
    }
}
