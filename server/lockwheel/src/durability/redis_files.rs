//! Files in which a Redis has kept its keys: this server does not read them.

use std::fs;
use std::path::PathBuf;

use lockwheel_engine::settings::{Settings, directive};
use lockwheel_log::names::Name;
use tracing::warn;

use super::directory;

/// Logs which files of a Redis there are in `dir`. A server that has a log goes on with that.
pub(crate) fn warn_of_redis_files(settings: &Settings) {
    if !has_log(settings) {
        for path in names(settings).into_iter().filter(|path| path.is_file()) {
            let path = path.display();
            warn!(
                "{path} was written by Redis and is not read: the server starts without its keys"
            );
        }
    }
}

/// Whether an earlier run has left a log that this one reads.
fn has_log(settings: &Settings) -> bool {
    let is_of_log =
        |entry: fs::DirEntry| entry.file_name().to_str().and_then(Name::parse).is_some();
    settings.has_log()
        && fs::read_dir(directory(settings)).is_ok_and(|dir| dir.flatten().any(is_of_log))
}

/// Where a Redis with these settings, or an older one, has its keys.
fn names(settings: &Settings) -> [PathBuf; 3] {
    let dir = PathBuf::from(settings.get(directive::DIR));
    let value = |name: &[u8]| {
        let found = settings.matching(&[name], |_, _| false);
        found.into_iter().map(|(_, value)| value).next().unwrap_or_default()
    };
    let (snapshot, log) = (value(b"dbfilename"), value(b"appendfilename"));
    let manifest = directory(settings).join(format!("{log}.manifest"));
    [dir.join(snapshot), dir.join(log), manifest]
}
