//! The limits that the tests of this crate use. Servers set their own.

#![allow(unreachable_pub)]

use super::Limits;

pub const LIMITS: Limits = Limits {
    memory_bytes_max: 64 << 20,
    script_bytes_max: 1 << 20,
    eval_scripts_max: 500,
    eval_bytes_max: 32 << 20,
    loaded_bytes_max: 256 << 20,
    compiled_bytes_max: 16 << 20,
    library_functions_max: 1_000,
    match_steps_max: 5_000_000,
    nesting_max: 256,
    interrupt_instructions: 1_000,
    plan_tokens_max: 4_096,
    plan_depth_max: 48,
    plan_locals_max: 64,
    plan_calls_max: 512,
    plan_steps_max: 10_000,
    plan_bytes_max: 1 << 20,
};
