//! Panics on one input. A fuzzer that does not report this one finds nothing at all:
//! `printf LOCKWHEEL > found && cargo +nightly fuzz run canary found` must fail.

#![no_main]

use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"LOCKWHEEL";

fuzz_target!(|data: &[u8]| assert_ne!(data, MAGIC, "the canary sings"));
