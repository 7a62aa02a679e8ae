//! Redlock with five servers, one of which restarts without its data: two clients hold the lock.
//! The server should stay down for as long as the longest lease lasts.
#![allow(clippy::print_stdout)]

use lockwheel::{Error, Fault, Reply, Requests, Server};

/// The names of the servers that give `client` the lock.
fn take(servers: &[Server], client: &str) -> String {
    let command = ["SET", "lock", client, "NX", "PX", "30000"];
    let taken = |server: &Server| Ok::<bool, Error>(server.client()?.call(&command)? == Reply::OK);
    let names = servers.iter().zip(["A", "B", "C", "D", "E"]);
    names.filter(|(server, _)| taken(server).unwrap_or(false)).map(|(_, name)| name).collect()
}

fn main() -> Result<(), Error> {
    let mut servers = (0..5).map(|_| Server::start()).collect::<Result<Vec<_>, _>>()?;
    for cut_off in &servers[3..] {
        cut_off.faults().add(Fault::Close, Requests::any().command("set").nth(1))?;
    }
    println!("the first client has the lock on {}", take(&servers, "first"));

    servers[2] = Server::start()?;
    println!("C is killed and restarted, empty");

    println!("the second client has the lock on {}", take(&servers, "second"));
    println!("both have a majority of the five servers: both hold the lock");
    Ok(())
}
