//! Compares the public API of the crate `lockwheel` with `server/lockwheel/public-api.txt`.
//! With `LOCKWHEEL_WRITE_PUBLIC_API=1` the file is written instead.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of Rust that writes the JSON: the one that the crate `public-api` reads.
const TOOLCHAIN: &str = "1.95.0";

#[test]
fn public_api_is_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("server/lockwheel/public-api.txt");
    let api = public_api::Builder::from_rustdoc_json(rustdoc_json(&root))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("rustdoc's JSON in the format of this version")
        .to_string();
    if std::env::var_os("LOCKWHEEL_WRITE_PUBLIC_API").is_some() {
        std::fs::write(&path, &api).expect("a writable checkout");
    }
    let recorded = std::fs::read_to_string(&path).expect("the recorded API");
    let removed = recorded.lines().filter(|line| !api.lines().any(|it| it == *line));
    let added = api.lines().filter(|line| !recorded.lines().any(|it| it == *line));
    let changes: Vec<String> = removed
        .map(|line| format!("- {line}"))
        .chain(added.map(|line| format!("+ {line}")))
        .collect();
    assert!(
        changes.is_empty(),
        "the public API has changed; if that is intended, run this test with \
         LOCKWHEEL_WRITE_PUBLIC_API=1 and describe the change in CHANGELOG.md:\n{}",
        changes.join("\n")
    );
}

/// Lets rustdoc describe the library.
fn rustdoc_json(root: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rustdoc");
    let status = Command::new("rustup")
        .args(["run", TOOLCHAIN, "cargo", "rustdoc", "--quiet", "--locked"])
        .args(["--package", "lockwheel", "--lib", "--target-dir"])
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json"])
        // The JSON is an unstable feature, and its format is the same in every run of TOOLCHAIN.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root)
        .status();
    assert!(status.expect("rustup runs").success(), "rustdoc of {TOOLCHAIN} has failed");
    target.join("doc/lockwheel.json")
}
