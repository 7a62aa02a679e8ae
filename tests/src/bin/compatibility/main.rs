//! Runs the lock compatibility suite on every server that can be had (Lockwheel, Redis and Valkey,
//! and the test doubles of `tests/compatibility/`), and writes `docs/compatibility.md`.
//!
//! What came of a server is kept in `tests/compatibility/results/`: the page is made of all that
//! is there, so a server that cannot be run here keeps the row of the run before.

#![allow(clippy::print_stdout)] // A program that speaks to whoever runs it.

mod page;
mod results;
mod servers;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::results::Results;
use crate::servers::{SERVERS, Server, Trouble};

/// Runs the lock compatibility suite on every server that can be had, and writes the page.
#[derive(Parser)]
#[command(name = "tests/compatibility/run")]
struct Options {
    /// Which servers; all of them when none is named
    servers: Vec<String>,
    /// Say which servers there are
    #[arg(long)]
    list: bool,
    /// Make the folder with Debian 13's servers if it is missing; needs debootstrap and root
    #[arg(long)]
    debootstrap: bool,
    /// Write the page from the results that are there, and run nothing
    #[arg(long)]
    page: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        SERVERS.iter().for_each(|server| println!("{:12} {}", server.key, server.title));
        return ExitCode::SUCCESS;
    }
    let unknown = |key: &&String| SERVERS.iter().all(|server| server.key != **key);
    if let Some(unknown) = options.servers.iter().find(unknown) {
        println!("there is no server {unknown}: see --list");
        return ExitCode::FAILURE;
    }
    let mut all_well = true;
    let chosen = |server: &&Server| {
        options.servers.is_empty() || options.servers.iter().any(|key| key == server.key)
    };
    for server in SERVERS.iter().filter(chosen).filter(|_| !options.page) {
        println!("{}: begins", server.key);
        match trial::run(server, options.debootstrap) {
            Ok(results) => {
                println!("{}: {}", server.key, results.in_short());
                results.save(&folder().join(format!("results/{}.json", server.key)));
                all_well &= server.is_double || results.is_green();
            }
            // What was found out before stays.
            Err(Trouble::NoTools(what)) => println!("{}: not run: {what}", server.key),
            Err(Trouble::Died(how)) => {
                println!("{}: {how}", server.key);
                all_well = false;
            }
        }
    }
    let known = SERVERS.iter().map(|server| {
        let path = folder().join(format!("results/{}.json", server.key));
        (server, Results::load(&path))
    });
    let text = page::write(&known.collect::<Vec<_>>());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compatibility.md");
    fs::write(&path, text).expect("the page is written");
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The projects around the test doubles, and what came of all servers.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compatibility")
}
