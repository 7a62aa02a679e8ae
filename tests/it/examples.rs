//! The output of the examples, and their length: each must be short.

use std::process::Command;

use lockwheel_tests::daemon;
use lockwheel_tests::process::output;

const LINES: usize = 40;

fn check(name: &str, expected: &str) {
    let output = output(&mut Command::new(daemon::example(name))).expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
    let path = format!("{}/../server/lockwheel/examples/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("an example");
    assert!(text.lines().count() < LINES, "{name}");
}

/// Shows L11.
#[test]
fn fencing_tokens_stop_a_client_after_a_pause() {
    check(
        "pause",
        "without fencing tokens:
  by the second client (token 2): written
  by the first client, which has lost the lock (token 1): written
with fencing tokens:
  by the second client (token 2): written
  by the first client, which has lost the lock (token 1): refused
",
    );
}

#[test]
fn clock_jump_grants_the_lock_twice() {
    check(
        "clock_jump",
        "the first client has the lock on ABC
the clock of C jumps by 30 seconds; no time has passed anywhere
the second client has the lock on CDE
both have a majority of the five servers: both hold the lock
",
    );
}

#[test]
fn empty_restart_grants_the_lock_twice() {
    check(
        "empty_restart",
        "the first client has the lock on ABC
C is killed and restarted, empty
the second client has the lock on CDE
both have a majority of the five servers: both hold the lock
",
    );
}

#[test]
fn failover_that_loses_a_write_grants_the_lock_twice() {
    check(
        "failover",
        "the first client has the lock
the second client is refused
the master fails, and 1 write with it: there was one that it had confirmed
the second client has the lock
both hold the lock; the first notices when it releases the lock:
  GET lock -> the second client
",
    );
}
