//! Sends the same inputs to two engines with the same seed, and compares everything they give out:
//! random commands, or what the compatibility suite sends.

#![allow(clippy::print_stdout)] // The result of the program.

use std::process::ExitCode;

use clap::Parser;
use lockwheel_compat::cases::wrapping::Wrapping;
use lockwheel_engine::settings::Settings;
use lockwheel_tests::random_inputs;
use lockwheel_tests::recorded_suite::{self, Part};

/// Compares two engines that receive the same inputs
#[derive(Parser)]
struct Arguments {
    /// The seed of the first run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of commands in each run
    #[arg(long, default_value_t = 100_000)]
    commands: u64,
    /// The number of runs, each with the next seed
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// A directive and its value, such as verify-effects=yes
    #[arg(long)]
    set: Vec<String>,
    /// Replay the compatibility suite instead, also in transactions and scripts
    #[arg(long)]
    suite: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut settings = Settings::default();
    for setting in &arguments.set {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        if let Err(problem) = settings.apply(name, value) {
            println!("{setting}: {problem}");
            return ExitCode::FAILURE;
        }
    }
    if arguments.suite {
        for wrapping in [Wrapping::None].into_iter().chain(Wrapping::INSIDE) {
            match recorded_suite::compare(Part::Everything, wrapping) {
                Ok(inputs) => println!("{wrapping:?}: {inputs} inputs, no difference"),
                Err(difference) => {
                    println!("{difference}");
                    return ExitCode::FAILURE;
                }
            }
        }
        return ExitCode::SUCCESS;
    }
    for seed in arguments.seed..arguments.seed + arguments.runs {
        match random_inputs::compare(&settings, seed, arguments.commands) {
            Ok(commands) => println!("seed {seed}: {commands} commands, no difference"),
            Err(difference) => {
                println!("{difference}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
