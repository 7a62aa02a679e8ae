//! Runs the lock compatibility suite on every available server (Lockwheel, Redis and Valkey, and
//! the test doubles of `tests/compatibility/`), and writes `docs/compatibility.md`.
//!
//! The results of a server are stored in `tests/compatibility/results/`. The page is made from all
//! stored results, so a server that cannot be run here keeps the row of an earlier run.

#![allow(clippy::print_stdout)] // A command-line program.

mod page;
mod results;
mod servers;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::results::Results;
use crate::servers::{SERVERS, Server, ServerError};

/// Runs the lock compatibility suite on every available server, and writes the page.
#[derive(Parser)]
#[command(name = "tests/compatibility/run")]
struct Options {
    /// The servers to run; all if none is named
    servers: Vec<String>,
    /// List the servers
    #[arg(long)]
    list: bool,
    /// Create the folder with the servers of Debian 13 if it is missing; needs debootstrap and root
    #[arg(long)]
    debootstrap: bool,
    /// Write the page from the stored results, and run nothing
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
            // The stored results stay.
            Err(ServerError::NoTools(what)) => println!("{}: not run: {what}", server.key),
            Err(ServerError::Failed(how)) => {
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    fs::write(&path, text).expect("the page is written");
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The folder of the test doubles and of the results of all servers.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../compatibility")
}
