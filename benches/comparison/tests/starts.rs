//! A test of the program `starts`. The measured values are not checked.

use std::process::Command;

#[test]
fn page_is_written() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starts"));
    let output = command.args(["--alone", "--rounds", "2", "--starts", "3"]).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    for row in ["| Lockwheel | **", "| Lockwheel: `Server::start()` | **"] {
        assert!(page.contains(row), "{page}");
    }
}
