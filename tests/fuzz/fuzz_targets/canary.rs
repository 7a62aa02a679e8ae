//! Panics on one input. If the fuzzer does not report it, it finds no panics at all.

const MAGIC: &[u8] = b"LOCKWHEEL";

pub(crate) fn check(data: &[u8]) {
    assert_ne!(data, MAGIC, "the canary sings");
}
