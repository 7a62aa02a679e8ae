//! What a test talks to: Leasehold, or a real `redis-server`; and how time passes on each.
//!
//! Tests never sleep. On Leasehold [`Target::advance`] moves the manual clock. A real server has
//! no such clock, so there every key's deadline is moved closer by the same span, and a deadline
//! that was reached removes its key: whoever asks afterwards sees what waiting would have shown.
//! Only a connection that WATCHes such a key, or listens for keyspace events, sees the difference.

use std::net::SocketAddr;
use std::time::Duration;

use crate::frame::Frame;
use crate::redis_server::RedisServer;
use crate::wire::Wire;
use crate::{say, words};

/// A server under test.
pub enum Target {
    /// Ours, in this process.
    Leasehold(Box<leasehold::Server>),
    /// The oracle.
    Redis(RedisServer),
}

impl Target {
    /// A fresh Leasehold whose clock moves only by [`Target::advance`].
    pub fn leasehold() -> Target {
        let server = leasehold::Server::builder().manual_clock().start();
        Target::Leasehold(Box::new(server.expect("leasehold starts")))
    }

    /// A fresh Leasehold whose time is the machine's: for comparisons with wall-clock times.
    pub fn leasehold_on_system_clock() -> Target {
        let server = leasehold::Server::start();
        Target::Leasehold(Box::new(server.expect("leasehold starts")))
    }

    /// A fresh `redis-server`, or a line saying that the comparison is skipped.
    pub fn redis() -> Option<Target> {
        let server = RedisServer::start();
        if server.is_none() {
            say("skipped: no redis-server found");
        }
        server.map(Target::Redis)
    }

    /// Every target there is: Leasehold always, a real server where one is installed.
    pub fn all() -> Vec<Target> {
        std::iter::once(Target::leasehold()).chain(Target::redis()).collect()
    }

    /// For failure messages.
    pub fn name(&self) -> &'static str {
        match self {
            Target::Leasehold(_) => "leasehold",
            Target::Redis(_) => "redis-server",
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Target::Leasehold(server) => server.addr(),
            Target::Redis(server) => server.address(),
        }
    }

    /// A new connection speaking `protocol`.
    pub fn connect(&self, protocol: u8) -> Wire {
        Wire::connect(self.address(), protocol)
    }

    /// Lets time pass: see the module's documentation.
    pub fn advance(&self, span: Duration) {
        match self {
            Target::Leasehold(server) => server.advance(span).expect("its clock is manual"),
            Target::Redis(_) => self.move_deadlines_closer(span),
        }
    }

    fn move_deadlines_closer(&self, span: Duration) {
        let mut wire = self.connect(2);
        let script = "for _, key in ipairs(redis.call('keys', '*')) do \
                        local deadline = redis.call('pexpiretime', key) \
                        if deadline > 0 then \
                          redis.call('pexpireat', key, math.max(deadline - ARGV[1], 1)) \
                        end \
                      end \
                      return redis.status_reply('OK')";
        let span_ms = span.as_millis().to_string();
        let reply = wire.call(&["EVAL", script, "0", &span_ms]);
        assert_eq!(reply, b"+OK\r\n", "{}", Frame::parse(&reply));
    }

    /// Runs one line of text as a command on a connection of its own.
    pub fn run(&self, line: &str) -> Vec<u8> {
        self.connect(2).call(&words::split(line))
    }
}
