//! Serves a server with a seeded fault until it is ended: `faulty NAME`. Without a name it lists
//! the faults.

use std::io::Write;
use std::process::ExitCode;
use std::thread;

use lockwheel_tests::faulty::{FaultyServer, faults};

fn main() -> ExitCode {
    let name = std::env::args().nth(1);
    let mut out = std::io::stdout();
    let Some(name) = name else {
        for fault in faults() {
            let _ = writeln!(out, "{:<36}{}", fault.name, fault.description);
        }
        return ExitCode::SUCCESS;
    };
    let fault = faults().into_iter().find(|fault| fault.name == name);
    if fault.is_none() && name != "none" {
        let _ = writeln!(std::io::stderr(), "no fault is called {name}");
        return ExitCode::FAILURE;
    }
    match FaultyServer::start(fault) {
        Ok(server) => {
            let _ = writeln!(out, "{}", server.url());
            loop {
                thread::park();
            }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
