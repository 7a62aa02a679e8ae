//! The fuzz targets for untrusted input. `LOCKWHEEL_FUZZ_TARGET` selects one of them.

#![no_main]

use std::sync::LazyLock;
use std::{env, process};

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;

mod acl;
mod argv;
mod canary;
mod http;
#[allow(dead_code, reason = "most are those of other parts of the program")]
#[path = "../../../server/cli/src/limits.rs"]
mod limits;
mod parse;
mod restore;
mod script;
mod tiers;
mod tls;

const VARIABLE: &str = "LOCKWHEEL_FUZZ_TARGET";

/// Defines the targets: modules with a function `check`, and the types of its argument.
macro_rules! targets {
    ($($target:ident: $input:ty,)*) => {
        const TARGETS: &[&str] = &[$(stringify!($target)),*];

        /// The input of the selected target.
        #[allow(non_camel_case_types, reason = "the variants are the names of the targets")]
        #[derive(Debug)]
        enum Input<'a> {
            $($target($input),)*
        }

        impl<'a> Arbitrary<'a> for Input<'a> {
            fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Input<'a>> {
                let rest = bytes.bytes(bytes.len())?;
                Input::arbitrary_take_rest(Unstructured::new(rest))
            }

            fn arbitrary_take_rest(bytes: Unstructured<'a>) -> arbitrary::Result<Input<'a>> {
                match *TARGET {
                    $(stringify!($target) => {
                        Arbitrary::arbitrary_take_rest(bytes).map(Input::$target)
                    })*
                    name => unreachable!("{name} is not a target"),
                }
            }

            fn size_hint(depth: usize) -> (usize, Option<usize>) {
                match *TARGET {
                    $(stringify!($target) => <$input as Arbitrary>::size_hint(depth),)*
                    name => unreachable!("{name} is not a target"),
                }
            }
        }

        impl Input<'_> {
            fn check(self) {
                match self {
                    $(Input::$target(input) => $target::check(input),)*
                }
            }
        }
    };
}

targets! {
    acl: &'a [u8],
    argv: (u8, Vec<argv::Step<'a>>),
    canary: &'a [u8],
    http: Vec<http::Part<'a>>,
    parse: parse::Input<'a>,
    restore: &'a [u8],
    script: script::Input<'a>,
    tiers: &'a [u8],
    tls: (u8, Vec<tls::Step<'a>>),
}

/// The name of the selected target.
static TARGET: LazyLock<&str> = LazyLock::new(|| {
    let name = env::var(VARIABLE).unwrap_or_default();
    TARGETS.iter().copied().find(|target| *target == name).unwrap_or_else(|| {
        eprintln!("{VARIABLE} is {name:?}, but must be one of: {}", TARGETS.join(", "));
        process::exit(2)
    })
});

fuzz_target!(init: LazyLock::force(&TARGET), |input: Input| input.check());
