//! Redlock depends on clocks: Martin Kleppmann's example, to which Salvatore Sanfilippo replied
//! that administrators must prevent such jumps. The clock of one of five servers jumps, and two
//! clients hold the lock.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lockwheel::{Error, Fault, Reply, Requests, Server};

/// The names of the servers that give `client` the lock.
fn take(servers: &[Server], client: &str) -> String {
    let command = ["SET", "lock", client, "NX", "PX", "30000"];
    let taken = |server: &Server| Ok::<bool, Error>(server.client()?.call(&command)? == Reply::OK);
    let names = servers.iter().zip(["A", "B", "C", "D", "E"]);
    names.filter(|(server, _)| taken(server).unwrap_or(false)).map(|(_, name)| name).collect()
}

fn main() -> Result<(), Error> {
    let start = |_| Server::builder().frozen_clock().start();
    let servers = (0..5).map(start).collect::<Result<Vec<_>, _>>()?;
    for cut_off in &servers[3..] {
        cut_off.faults().add(Fault::Close, Requests::any().command("set").nth(1))?;
    }
    println!("the first client has the lock on {}", take(&servers, "first"));

    servers[2].clock().jump_forward(Duration::from_secs(30))?;
    println!("the clock of C jumps by 30 seconds; no time has passed anywhere");

    println!("the second client has the lock on {}", take(&servers, "second"));
    println!("both have a majority of the five servers: both hold the lock");
    Ok(())
}
