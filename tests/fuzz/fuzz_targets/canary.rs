//! Panics on one input. If the fuzzer does not report it, it finds no panics at all: `printf
//! LOCKWHEEL > found && cargo +nightly fuzz run canary found` must fail.

#![no_main]

use libfuzzer_sys::fuzz_target;

const MAGIC: &[u8] = b"LOCKWHEEL";

fuzz_target!(|data: &[u8]| assert_ne!(data, MAGIC, "the canary sings"));
