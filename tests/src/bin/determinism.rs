//! Sends random commands to two engines with the same seed, and compares everything they give out.

#![allow(clippy::print_stdout)] // The result of the program.

use std::process::ExitCode;

use clap::Parser;
use lockwheel_engine::settings::Settings;
use lockwheel_tests::random_inputs;

/// Compares two engines that receive the same random inputs
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
