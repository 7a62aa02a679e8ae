//! The settings of the log, read once at the start.

use std::path::{Path, PathBuf};

use lockwheel_engine::settings::Settings;

/// The directory of the log; `None` if there is no log. The engine keeps the values of these
/// directives for `CONFIG`; they were checked when they were set.
pub(crate) fn directory(settings: &Settings) -> Option<PathBuf> {
    let directory = || Path::new(&settings.text("dir")).join(settings.text("appenddirname"));
    settings.has_log().then(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read() {
        let mut settings = Settings::default();
        assert_eq!(directory(&settings), None);
        for (name, value) in [("appendonly", "yes"), ("dir", "/data"), ("appenddirname", "log")] {
            settings.apply(name, value).expect("a value of its kind");
        }
        assert_eq!(directory(&settings).as_deref(), Some(Path::new("/data/log")));
    }
}
