//! Tells the program from which commit and for which target it is built: for `--version`.

use std::process::Command;

fn main() {
    let target = std::env::var("TARGET").unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=LOCKWHEEL_TARGET={target}");
    println!("cargo::rustc-env=LOCKWHEEL_COMMIT={}", commit().unwrap_or("00000000:0".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
    // Git appends a line to it at each commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Eight digits of the commit, and 1 if the source had other changes, as `redis-server` shows them.
/// `None` if the source is not in a repository of its own, as that of a packed crate.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    let is_changed = git(&["diff", "--quiet", "HEAD"]).is_none();
    Some(format!("{commit}:{}", u8::from(is_changed)))
}

/// What Git prints; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
