//! The connections of a client to the servers of a target, as client libraries keep them.
//!
//! A connection stays until it fails or the server refuses to write. So a client does not leave a
//! former primary that still answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Address;
use lockwheel_compat::wire::frame::Frame;

use crate::clock::{now_us, sleep};
use crate::record::ServerProcess;
use crate::target::{SlotRange, Target, Topology, host_of};

/// Time-out of connecting and of the first replies, unless that of replies is shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The number of redirects that a request follows.
const REDIRECTS_MAX: usize = 5;
/// The number of hash slots of a cluster.
const SLOTS: u16 = 16_384;
/// The error of a server that ends a connection before its first reply.
pub(crate) const CLOSED: &str = "closed the connection before its first reply";

/// The errors of a server that cannot write now. Another one may be the primary.
pub(crate) const REFUSALS: &[&str] =
    &["READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "UNKNOWN"];

/// A connection to a server.
pub(crate) struct Link {
    pub(crate) address: Address,
    pub(crate) process: ServerProcess,
    pub(crate) wire: Wire,
    /// The section `server` of its `INFO`; empty without the right to ask.
    info: String,
}

impl Link {
    /// Connects, authenticates, and asks what the server is.
    pub(crate) fn open(address: &Address, reply_timeout: Duration) -> io::Result<Link> {
        let connect = || {
            let mut wire = connect(address, reply_timeout)?;
            let info = wire.call(&["INFO", "server"])?;
            Ok((wire, info))
        };
        let (mut wire, info) = connect().map_err(|error| match is_end(&error) {
            true => io::Error::new(error.kind(), CLOSED),
            false => error,
        })?;
        let text = info.as_text().unwrap_or_default();
        let info = match info.kind {
            b'-' if text.starts_with("NOPERM") || text.contains("unknown command") => String::new(),
            b'-' => return Err(io::Error::other(text)),
            _ => text,
        };
        wire.set_reply_timeout(reply_timeout);
        let run_id = field(&info, "run_id").unwrap_or_default().to_owned();
        let process = ServerProcess { address: place(address), run_id };
        Ok(Link { address: address.clone(), process, wire, info })
    }

    /// Name and version, as the server says.
    pub(crate) fn name(&self) -> String {
        let names = ["lockwheel", "valkey", "dragonfly", "kvrocks", "garnet", "redis"];
        let shown = names.iter().find_map(|name| {
            Some(format!("{name} {}", field(&self.info, &format!("{name}_version"))?))
        });
        shown.unwrap_or_else(|| "a server without INFO".to_owned())
    }

    pub(crate) fn is_lockwheel(&self) -> bool {
        field(&self.info, "lockwheel_version").is_some()
    }

    /// Whether the server is a primary; `None` without the right to ask.
    pub(crate) fn is_primary(&mut self) -> io::Result<Option<bool>> {
        let role = self.wire.call(&["ROLE"])?;
        if let Some(role) = role.items.first() {
            return Ok(Some(role.text == b"master"));
        }
        let info = self.wire.call(&["INFO", "replication"])?.as_text().unwrap_or_default();
        Ok(field(&info, "role").map(|role| role == "master"))
    }

    /// An error if the server does not work alone or with replicas.
    pub(crate) fn check_mode(&self) -> io::Result<()> {
        let mode = ["redis_mode", "server_mode"].iter().find_map(|name| field(&self.info, name));
        match mode {
            Some("cluster") => Err(io::Error::other("is a node of a cluster: write --cluster")),
            Some("sentinel") => Err(io::Error::other("is a sentinel: write --sentinel NAME")),
            _ => Ok(()),
        }
    }
}

/// The connection of a client to the servers of a target: one to each node of a cluster, otherwise
/// one to the primary.
pub(crate) struct Route {
    target: Arc<Target>,
    links: Vec<Link>,
    slots: Slots,
    ended: u64,
    /// The end of the pause after a failure.
    retry_at_us: i64,
    /// The number of failures, so that another node is asked after each.
    failures: usize,
}

/// A request and what came of it.
pub(crate) struct Call {
    /// Time before the request was first sent.
    pub(crate) invoked_us: i64,
    /// Time of the reply.
    pub(crate) returned_us: Option<i64>,
    /// The reply, which may be an error, or why there is none.
    pub(crate) reply: Result<Frame, String>,
    /// The server that the request was sent to.
    pub(crate) server: Option<ServerProcess>,
    /// Whether the request was sent at least in part, and not to a node that has redirected it.
    pub(crate) was_sent: bool,
}

/// A reply of a cluster that names another node.
struct Redirect {
    address: Address,
    /// Whether only this request is for that node, which needs `ASKING`.
    is_ask: bool,
}

/// What a client of a cluster knows about the nodes.
#[derive(Default)]
struct Slots {
    ranges: Vec<SlotRange>,
    /// The slots that have moved since the ranges were read.
    moved: BTreeMap<u16, Address>,
    /// The nodes in the ranges, also in the last ones that were given up.
    nodes: Vec<Address>,
}

impl Call {
    fn unsent(error: &io::Error) -> Call {
        let reply = Err(describe(error));
        Call { invoked_us: now_us(), returned_us: None, reply, server: None, was_sent: false }
    }
}

impl Route {
    /// A client without connections.
    pub(crate) fn new(target: Arc<Target>) -> Route {
        let (links, slots) = (Vec::new(), Slots::default());
        Route { target, links, slots, ended: 0, retry_at_us: 0, failures: 0 }
    }

    /// Sends a command about a key and reads its reply. Connects first if needed. After a failure,
    /// or an error of a server that cannot write now, the next call finds the primary anew.
    pub(crate) fn call(&mut self, key: &str, words: &[String]) -> Call {
        let mut call = self.call_once(key, words, None);
        for _ in 0..REDIRECTS_MAX {
            let Some(redirect) = self.redirect(&call) else { break };
            let invoked_us = call.invoked_us;
            call = Call { invoked_us, ..self.call_once(key, words, Some(&redirect)) };
        }
        call
    }

    fn call_once(&mut self, key: &str, words: &[String], redirect: Option<&Redirect>) -> Call {
        let index = match self.link(key, redirect) {
            Ok(index) => index,
            Err(error) => return Call::unsent(&error),
        };
        let link = &mut self.links[index];
        let server = Some(link.process.clone());
        let invoked_us = now_us();
        let asked = match redirect {
            Some(Redirect { is_ask: true, .. }) => link.wire.call(&["ASKING"]).map(|_| ()),
            _ => Ok(()),
        };
        let reply = asked.and_then(|()| link.wire.call(words));
        let returned_us = reply.is_ok().then(now_us);
        match &reply {
            Ok(reply) if is_refusal(reply) => self.give_up(index),
            Ok(_) => {}
            Err(error) => {
                self.ended += u64::from(is_end(error));
                self.give_up(index);
            }
        }
        let reply = reply.map_err(|error| describe(&error));
        Call { invoked_us, returned_us, reply, server, was_sent: true }
    }

    /// Sends a command and closes the connection at once, so that the reply is lost.
    pub(crate) fn call_without_reply(&mut self, key: &str, words: &[String]) -> Call {
        let index = match self.link(key, None) {
            Ok(index) => index,
            Err(error) => return Call::unsent(&error),
        };
        let mut link = self.links.swap_remove(index);
        let invoked_us = now_us();
        let reply = match link.wire.send(words) {
            Ok(()) => "the client closed the connection".to_owned(),
            Err(error) => {
                self.ended += u64::from(is_end(&error));
                self.pause_next();
                describe(&error)
            }
        };
        let (reply, server) = (Err(reply), Some(link.process));
        Call { invoked_us, returned_us: None, reply, server, was_sent: true }
    }

    /// Subscribes to a channel on a connection of its own; `None` if that fails.
    pub(crate) fn subscribe(&self, channel: &str) -> Option<Wire> {
        let opened = match self.links.first() {
            Some(link) => connect(&link.address, self.target.reply_timeout),
            None => self.target.connect_to_primary().map(|link| link.wire),
        };
        let subscribed = opened.and_then(|mut wire| {
            wire.set_reply_timeout(self.target.reply_timeout);
            let reply = wire.call(&["SUBSCRIBE", channel])?;
            Ok((reply.kind == b'*').then_some(wire))
        });
        let wire = subscribed.ok().flatten();
        if wire.is_none() {
            // A waiting client that tries again must not do so without a pause.
            sleep(RETRY_PAUSE);
        }
        wire
    }

    /// Number of connections that ended without this client ending them.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// The index of the connection for a request about a key, which is opened if needed.
    fn link(&mut self, key: &str, redirect: Option<&Redirect>) -> io::Result<usize> {
        let address = match redirect {
            Some(redirect) => Some(redirect.address.clone()),
            None if self.target.topology == Topology::Cluster => Some(self.node(slot(key))?),
            None => None,
        };
        let fits = |link: &Link| address.as_ref().is_none_or(|address| link.address == *address);
        if let Some(index) = self.links.iter().position(fits) {
            return Ok(index);
        }
        self.pause();
        let opened = match &address {
            Some(address) => self.target.open(address),
            None => self.target.connect_to_primary(),
        };
        let link = opened.inspect_err(|_| self.pause_next())?;
        self.links.push(link);
        Ok(self.links.len() - 1)
    }

    /// The node that has a slot. Reads the slots from a node if they are not known.
    fn node(&mut self, slot: u16) -> io::Result<Address> {
        if self.slots.ranges.is_empty() {
            self.pause();
            let ranges = self.read_slots().inspect_err(|_| self.pause_next())?;
            self.slots.set(ranges);
        }
        let node = self.slots.node(slot).cloned();
        // Another node knows which one has the slot, or that there is none.
        let node = node.or_else(|| self.slots.nodes.first().cloned());
        node.ok_or_else(|| io::Error::other("the cluster has no node"))
    }

    /// Asks the known nodes in turn, after each failure beginning with another one.
    fn read_slots(&self) -> io::Result<Vec<SlotRange>> {
        let nodes: Vec<_> = self.target.addresses.iter().chain(&self.slots.nodes).collect();
        let mut problem = io::Error::other("no address");
        for turn in 0..nodes.len() {
            let node = nodes[(self.failures + turn) % nodes.len()];
            match self.target.ask_slots(node) {
                Ok(ranges) => return Ok(ranges),
                Err(error) => {
                    problem = io::Error::other(format!("{node}: {}", describe(&error)));
                }
            }
        }
        Err(problem)
    }

    /// The redirect in a reply of a cluster.
    fn redirect(&mut self, call: &Call) -> Option<Redirect> {
        let reply = call.reply.as_ref().ok().filter(|reply| reply.kind == b'-')?;
        let text = reply.as_text().filter(|_| self.target.topology == Topology::Cluster)?;
        let mut words = text.split(' ');
        let (code, slot, place) = (words.next()?, words.next()?, words.next()?);
        if !matches!(code, "MOVED" | "ASK") {
            return None;
        }
        let (host, port) = place.rsplit_once(':')?;
        // A node that does not know its host names only the port.
        let host = match (host, call.server.as_ref()) {
            ("" | "?", Some(server)) => {
                let asked = self.links.iter().find(|link| link.process == *server)?;
                host_of(&asked.address)?
            }
            (host, _) => host.to_owned(),
        };
        let address = self.target.reached_at(&host, port.parse().ok()?)?;
        if code == "MOVED" {
            self.slots.moved.insert(slot.parse().ok()?, address.clone());
        }
        Some(Redirect { address, is_ask: code == "ASK" })
    }

    /// Closes a connection after a failure.
    fn give_up(&mut self, index: usize) {
        self.links.swap_remove(index);
        self.pause_next();
    }

    /// After a failure, the next connection comes after a pause, and the slots are read again.
    fn pause_next(&mut self) {
        self.slots.clear();
        self.failures = self.failures.wrapping_add(1);
        self.retry_at_us = now_us() + i64::try_from(RETRY_PAUSE.as_micros()).unwrap_or(0);
    }

    fn pause(&self) {
        let left_us = self.retry_at_us.saturating_sub(now_us());
        sleep(Duration::from_micros(u64::try_from(left_us).unwrap_or(0)).min(RETRY_PAUSE));
    }
}

impl Slots {
    fn node(&self, slot: u16) -> Option<&Address> {
        let has_slot = |range: &&SlotRange| (range.first..=range.last).contains(&slot);
        let range = || self.ranges.iter().find(has_slot)?.nodes.first();
        self.moved.get(&slot).or_else(range)
    }

    fn set(&mut self, ranges: Vec<SlotRange>) {
        self.nodes.clear();
        for node in ranges.iter().flat_map(|range| &range.nodes) {
            if !self.nodes.contains(node) {
                self.nodes.push(node.clone());
            }
        }
        self.ranges = ranges;
    }

    /// Gives up which node has which slot. The nodes can still be asked.
    fn clear(&mut self) {
        self.ranges.clear();
        self.moved.clear();
    }
}

/// Whether the server cannot write now. Redis 6 puts the errors of commands in scripts into a
/// longer text.
fn is_refusal(reply: &Frame) -> bool {
    let text = reply.as_text().filter(|_| reply.kind == b'-').unwrap_or_default();
    let begins = |text: &str| {
        let code = text.split(' ').next().unwrap_or_default();
        REFUSALS.contains(&code)
    };
    begins(&text) || text.split(" -").skip(1).any(begins)
}

/// The address without scheme: `HOST:PORT`, or the path of a unix socket.
pub(crate) fn place(address: &Address) -> String {
    let shown = address.to_string();
    shown.split_once("://").map(|(_, place)| place.to_owned()).unwrap_or(shown)
}

/// Connects and authenticates.
fn connect(address: &Address, reply_timeout: Duration) -> io::Result<Wire> {
    Wire::connect(address, 2, handshake_timeout(reply_timeout))
}

/// Time-out of connecting, and of each reply until the connection can be used.
pub(crate) fn handshake_timeout(reply_timeout: Duration) -> Duration {
    reply_timeout.min(CONNECT_TIMEOUT)
}

/// Whether the server ended the connection.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// The error of a connection for reports.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no reply in time".to_owned(),
        _ if is_end(error) && error.get_ref().is_none() => {
            "the server closed the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A field of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}

/// The hash slot of a key: that of the part in the first braces, if it is not empty.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{Slots, crc16, is_refusal, slot};
    use crate::target::SlotRange;
    use lockwheel_compat::wire::address::Address;
    use lockwheel_compat::wire::frame::Frame;

    #[test]
    fn checksum_is_that_of_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn slot_is_that_of_the_first_hash_tag() {
        assert_eq!(slot("foo"), 12182);
        assert_eq!(slot("a{foo}b{bar}"), 12182);
        assert_eq!(slot("{foo}"), 12182);
        for whole in ["{}foo", "foo{", "foo}{", "a{}{foo}"] {
            assert_eq!(slot(whole), crc16(whole.as_bytes()) % super::SLOTS, "{whole}");
        }
    }

    #[test]
    fn refusals_are_recognised_in_scripts_too() {
        let is_refused = |text: &str| is_refusal(&Frame::whole(text.as_bytes()).expect(text));
        assert!(is_refused("-READONLY You can't write against a read only replica.\r\n"));
        assert!(is_refused("-LOADING Redis is loading the dataset in memory\r\n"));
        assert!(is_refused("-ERR Error running script: @user_script: 1: -READONLY You can't\r\n"));
        assert!(!is_refused("-NOSCRIPT No matching script.\r\n"));
        assert!(!is_refused("-MOVED 1 h:1\r\n"));
        assert!(!is_refused("+READONLY\r\n"));
    }

    #[test]
    fn moved_slots_override_ranges_until_they_are_given_up() {
        let node = |port: u16| Address::parse(&format!("redis://h:{port}")).expect("a URL");
        let range = |first, last, port| SlotRange { first, last, nodes: vec![node(port)] };
        let mut slots = Slots::default();
        slots.set(vec![range(0, 99, 1), range(100, 199, 2)]);
        assert_eq!(slots.node(99), Some(&node(1)));
        assert_eq!(slots.node(100), Some(&node(2)));
        assert_eq!(slots.node(200), None);
        slots.moved.insert(99, node(2));
        assert_eq!(slots.node(99), Some(&node(2)));
        slots.clear();
        assert_eq!(slots.node(99), None);
        assert_eq!(slots.nodes, [node(1), node(2)]);
    }
}
