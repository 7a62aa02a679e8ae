//! A failover that loses the last write: the replica becomes the master before it has received the
//! lock. Library and server behave correctly: replication is asynchronous.
#![allow(clippy::print_stdout)]

use lockwheel::{Error, Reply, Server};

fn main() -> Result<(), Error> {
    let server = Server::builder().for_tests().start()?;
    let take = |client: &str| -> Result<(), Error> {
        let taken = server.client()?.call(&["SET", "lock", client, "NX", "PX", "30000"])?;
        println!("{client} {}", if taken == Reply::OK { "has the lock" } else { "is refused" });
        Ok(())
    };
    take("the first client")?;
    take("the second client")?;

    let lost = server.faults().failover(1)?;
    println!("the master fails, and {lost} write with it: there was one that it had confirmed");

    take("the second client")?;
    println!("both hold the lock; the first notices when it releases the lock:");
    let Reply::Bulk(holder) = server.call(&["GET", "lock"])? else { panic!("there is no lock") };
    println!("  GET lock -> {}", String::from_utf8_lossy(&holder));
    Ok(())
}
