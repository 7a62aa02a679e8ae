//! A client that pauses for longer than its lease, after Martin Kleppmann: it continues as if it
//! held the lock, and overwrites the data of the next holder. A fencing token prevents this.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lockwheel::{Error, Reply, Server};

const TAKE: &str = "if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', 30000) then \
    return redis.call('incr', KEYS[2]) end";

/// A file that accepts every write, or only those with a token no lower than the last.
struct File(bool, i64);

impl File {
    fn write(&mut self, text: &str, token: i64) {
        let refused = self.0 && token < self.1;
        println!("  {text} (token {token}): {}", if refused { "refused" } else { "written" });
        self.1 = self.1.max(token);
    }
}

fn main() -> Result<(), Error> {
    for mut file in [File(false, 0), File(true, 0)] {
        println!("{} fencing tokens:", if file.0 { "with" } else { "without" });
        let server = Server::builder().frozen_clock().start()?;
        let take = |client| match server.call(&["EVAL", TAKE, "2", "lock", "tokens", client]) {
            Ok(Reply::Integer(token)) => token,
            other => panic!("{client} does not get the lock: {other:?}"),
        };
        let first = take("the first client");
        server.advance(Duration::from_secs(31))?; // A garbage collection.
        let second = take("the second client");
        file.write("by the second client", second);
        file.write("by the first client, which has lost the lock", first);
    }
    Ok(())
}
