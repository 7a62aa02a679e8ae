//! The servers of a run: where they are, how they belong together, and which of them is the
//! primary.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::{Address, Endpoint};
use lockwheel_compat::wire::frame::Frame;

use crate::lock_kind::LockKind;
use crate::route::{CLOSED, Link, describe, handshake_timeout, place};

/// The commands of connections, of the monitor and of the end of a run.
const OWN_COMMANDS: &[&str] =
    &["asking", "cluster|slots", "del", "info", "role", "select", "subscribe", "time"];
/// The commands that are sent to sentinels.
const SENTINEL_COMMANDS: &[&str] = &["sentinel|get-master-addr-by-name", "sentinel|replicas"];
/// The name of the user in rules.
const USER: &str = "lockwheel-prove";
/// The start of all names of keys and channels.
const PREFIX: &str = "lockwheel-prove:";

/// How the servers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single,
    /// The addresses are those of sentinels, and this is the name of the primary.
    Sentinel(String),
    /// One of the servers is the primary, as they say themselves.
    Replicated,
    /// The servers are nodes of a Redis Cluster, perhaps not all of them.
    Cluster,
    /// The servers are independent of each other, for Redlock.
    Independent,
}

/// The servers of a run.
#[derive(Clone, Debug)]
pub struct Target {
    /// Their addresses. A server whose address is learned from others is reached with the user, the
    /// password, the database and the TLS of the first one.
    pub addresses: Vec<Address>,
    /// How they belong together.
    pub topology: Topology,
    /// How long a client waits for a reply.
    pub reply_timeout: Duration,
    /// The password of the sentinels; empty if they have none. If missing, they get the user and
    /// the password of their address, unless they refuse these.
    pub sentinel_password: Option<String>,
}

/// Consecutive hash slots of a cluster, and their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// The primary, then its replicas.
    pub(crate) nodes: Vec<Address>,
}

impl Target {
    /// The addresses and how they belong together, without passwords.
    pub fn describe(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(Address::to_string).collect();
        let addresses = addresses.join(", ");
        match &self.topology {
            Topology::Single => addresses,
            Topology::Sentinel(name) => format!("{addresses} (sentinel, primary {name})"),
            Topology::Replicated => format!("{addresses} (replicated)"),
            Topology::Cluster => format!("{addresses} (cluster)"),
            Topology::Independent => format!("{addresses} (independent)"),
        }
    }

    /// The name, version and address of each server that can be reached.
    ///
    /// # Errors
    /// If no run is possible: no server grants locks, one refuses the user, or they do not belong
    /// together in the way of the topology. The error names the address and the reason.
    pub fn servers(&self) -> Result<Vec<String>, String> {
        let links = self.reach().map_err(|error| self.advised(&error.to_string()))?;
        let shown = links.iter().map(|link| format!("{} at {}", link.name(), link.process.address));
        Ok(shown.collect())
    }

    /// Whether all servers that can be reached are Lockwheel, which has the commands `LOCK.*`.
    pub fn is_lockwheel(&self) -> bool {
        self.reach().is_ok_and(|links| links.iter().all(Link::is_lockwheel))
    }

    /// One of several independent servers, alone.
    pub(crate) fn part(&self, index: usize) -> Target {
        let addresses = self.addresses.get(index).cloned().into_iter().collect();
        Target { addresses, topology: Topology::Single, ..self.clone() }
    }

    /// The command that creates a user with the rights that locks of these kinds need.
    ///
    /// Redis refuses a rule with a command that it does not have, so the commands of sentinels are
    /// in [`Target::sentinel_acl_rule`].
    pub fn acl_rule(kinds: &[&LockKind]) -> String {
        let commands = kinds.iter().flat_map(|kind| kind.commands).map(|it| it.to_lowercase());
        let own = OWN_COMMANDS.iter().map(|command| (*command).to_owned());
        let commands: BTreeSet<String> = commands.chain(own).collect();
        let commands: String = commands.iter().map(|command| format!(" +{command}")).collect();
        // Redisson puts the name of a lock in braces to derive names from it.
        format!(
            "ACL SETUSER {USER} on >PASSWORD resetkeys ~{PREFIX}* resetchannels \
             &{PREFIX}* -@all{commands}"
        )
    }

    /// The command that gives this user the right to ask sentinels, and nodes of a Lockwheel
    /// cluster, for the primary. On the latter it comes after that of [`Target::acl_rule`].
    pub fn sentinel_acl_rule() -> String {
        let commands: String = SENTINEL_COMMANDS.iter().map(|it| format!(" +{it}")).collect();
        format!("ACL SETUSER {USER} on >PASSWORD{commands}")
    }

    /// Connects to a server.
    pub(crate) fn open(&self, address: &Address) -> io::Result<Link> {
        Link::open(address, self.reply_timeout)
    }

    /// Connects to the server that executes writes now.
    pub(crate) fn connect_to_primary(&self) -> io::Result<Link> {
        match &self.topology {
            Topology::Sentinel(name) => {
                let mut refused = BTreeSet::new();
                self.first(&self.addresses, |sentinel| {
                    let mut wire = self.connect_to_sentinel(sentinel)?;
                    let address = self.ask_primary(&mut wire, name)?;
                    if !refused.insert(place(&address)) {
                        return Err(io::Error::other(format!("names {address}, too")));
                    }
                    self.first(&[address], |address| self.open_primary(address))
                })
            }
            Topology::Replicated => self.first(&self.addresses, |it| self.open_primary(it)),
            _ => self.first(&self.addresses, |address| self.open(address)),
        }
    }

    fn open_primary(&self, address: &Address) -> io::Result<Link> {
        let mut link = self.open(address)?;
        match link.is_primary()? {
            Some(false) => Err(io::Error::other("is a replica")),
            // Without the right to ask, the server is taken for what it was named.
            Some(true) | None => Ok(link),
        }
    }

    /// The first result; if there is none, the problems of all addresses.
    fn first<T>(
        &self,
        addresses: &[Address],
        mut attempt: impl FnMut(&Address) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut problems = Vec::new();
        for address in addresses {
            match attempt(address) {
                Ok(result) => return Ok(result),
                Err(error) => problems.push(format!("{address}: {}", describe(&error))),
            }
        }
        match problems.is_empty() {
            true => Err(io::Error::other(format!("no address in {}", self.describe()))),
            false => Err(io::Error::other(problems.join("; "))),
        }
    }

    /// Connects to a sentinel, which may have another password than the servers, or none.
    pub(crate) fn connect_to_sentinel(&self, sentinel: &Address) -> io::Result<Wire> {
        let timeout = handshake_timeout(self.reply_timeout);
        let open = Address {
            user: None,
            password: None,
            database: None,
            endpoint: sentinel.endpoint.clone(),
        };
        if let Some(password) = &self.sentinel_password {
            let password = Some(password.clone()).filter(|password| !password.is_empty());
            return Wire::connect(&Address { password, ..open }, 2, timeout);
        }
        match Wire::connect(&Address { database: None, ..sentinel.clone() }, 2, timeout) {
            // It has no password. If it has another one, it will refuse the next command.
            Err(error) if error.to_string().starts_with("AUTH: ") => {
                Wire::connect(&open, 2, timeout)
            }
            connected => connected,
        }
    }

    /// Asks a sentinel for the address of the primary.
    pub(crate) fn ask_primary(&self, sentinel: &mut Wire, name: &str) -> io::Result<Address> {
        let reply = sentinel.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name])?;
        if reply.kind == b'-' {
            let text = reply.as_text().unwrap_or_default();
            return Err(io::Error::other(match text.contains("unknown command") {
                true => format!("is no sentinel: {text}"),
                false => text,
            }));
        }
        let address = match &reply.items[..] {
            [host, port] => self.at(host.as_text(), port),
            _ => None,
        };
        address.ok_or_else(|| io::Error::other(format!("knows no primary named {name}")))
    }

    /// Asks a sentinel for the addresses of the replicas.
    pub(crate) fn ask_replicas(&self, sentinel: &mut Wire, name: &str) -> io::Result<Vec<Address>> {
        let reply = sentinel.call(&["SENTINEL", "REPLICAS", name])?;
        let addresses = reply.items.iter().filter_map(|replica| {
            let field = |name: &[u8]| {
                let pair = |pair: &&[Frame]| pair[0].text == name;
                replica.items.chunks_exact(2).find(pair).map(|pair| &pair[1])
            };
            self.at(field(b"ip")?.as_text(), field(b"port")?)
        });
        Ok(addresses.collect())
    }

    /// Asks a node which slots each node of the cluster has.
    pub(crate) fn ask_slots(&self, node: &Address) -> io::Result<Vec<SlotRange>> {
        let reply = self.open(node)?.wire.call(&["CLUSTER", "SLOTS"])?;
        if reply.kind == b'-' {
            let text = reply.as_text().unwrap_or_default();
            return Err(io::Error::other(format!("is no node of a cluster: {text}")));
        }
        let number = |frame: &Frame| frame.as_text()?.parse::<u16>().ok();
        let range = |entry: &Frame| {
            let [first, last, nodes @ ..] = &entry.items[..] else { return None };
            let address = |entry: &Frame| {
                let [host, port, ..] = &entry.items[..] else { return None };
                // A node that does not know its host is the one that was asked.
                let host = host.as_text().filter(|host| !host.is_empty());
                self.at(host.or_else(|| host_of(node)), port)
            };
            let nodes = nodes.iter().filter_map(address).collect();
            Some(SlotRange { first: number(first)?, last: number(last)?, nodes })
        };
        let ranges: Vec<_> = reply.items.iter().filter_map(range).collect();
        match ranges.iter().all(|range| range.nodes.is_empty()) {
            true => Err(io::Error::other("knows no node with slots")),
            false => Ok(ranges),
        }
    }

    /// The address that a server names, reached as the first one.
    fn at(&self, host: Option<String>, port: &Frame) -> Option<Address> {
        // A node of a cluster names a host that it does not know so.
        let host = host.filter(|host| !host.is_empty() && host != "?")?;
        self.reached_at(&host, port.as_text()?.parse().ok()?)
    }

    /// The address with another host and port; `None` if there are no addresses.
    pub(crate) fn reached_at(&self, host: &str, port: u16) -> Option<Address> {
        let mut address = self.addresses.first()?.clone();
        #[cfg(feature = "tls")]
        if let Endpoint::Tls(.., client) = address.endpoint {
            address.endpoint = Endpoint::Tls(host.to_owned(), port, client);
            return Some(address);
        }
        address.endpoint = Endpoint::Tcp(host.to_owned(), port);
        Some(address)
    }

    /// The addresses of all servers that the first sentinel or node that answers knows.
    pub(crate) fn members(&self) -> io::Result<Vec<Address>> {
        match &self.topology {
            Topology::Sentinel(name) => self.first(&self.addresses, |sentinel| {
                let mut wire = self.connect_to_sentinel(sentinel)?;
                let primary = self.ask_primary(&mut wire, name)?;
                let replicas = self.ask_replicas(&mut wire, name)?;
                Ok([vec![primary], replicas].concat())
            }),
            Topology::Cluster => self.first(&self.addresses, |node| {
                let mut nodes: Vec<Address> = Vec::new();
                for node in self.ask_slots(node)?.into_iter().flat_map(|range| range.nodes) {
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                }
                Ok(nodes)
            }),
            _ => Ok(self.addresses.clone()),
        }
    }

    /// Connects to all servers that can be reached; an error if no run is possible.
    fn reach(&self) -> io::Result<Vec<Link>> {
        match &self.topology {
            Topology::Single => {
                self.first(&self.addresses, |it| self.open_alone(it)).map(|it| vec![it])
            }
            Topology::Independent => self.reach_majority(),
            Topology::Cluster => {
                let members = self.members()?;
                let links: Vec<_> = members.iter().filter_map(|it| self.open(it).ok()).collect();
                match links.is_empty() {
                    true => self.first(&members, |address| self.open(address)).map(|it| vec![it]),
                    false => Ok(links),
                }
            }
            Topology::Sentinel(_) | Topology::Replicated => {
                let primary = self.connect_to_primary()?;
                self.first(std::slice::from_ref(&primary.address), |_| primary.check_mode())?;
                let mut members = self.members()?;
                members.retain(|address| place(address) != primary.process.address);
                let others = members.iter().filter_map(|address| self.open(address).ok());
                Ok([primary].into_iter().chain(others).collect())
            }
        }
    }

    /// Connects to a server that grants locks alone.
    fn open_alone(&self, address: &Address) -> io::Result<Link> {
        let mut link = self.open(address)?;
        link.check_mode()?;
        match link.is_primary()? {
            Some(false) => Err(io::Error::other(
                "is a replica, which grants no locks: name its primary, or all servers with \
                 --replicated, or the sentinels with --sentinel NAME",
            )),
            Some(true) | None => Ok(link),
        }
    }

    /// Connects to independent servers. Some may be down, but Redlock grants no locks without a
    /// majority. A server that refuses the user or has another role is an error of the user.
    fn reach_majority(&self) -> io::Result<Vec<Link>> {
        let (mut links, mut problems) = (Vec::new(), Vec::new());
        for address in &self.addresses {
            match self.open_alone(address) {
                Ok(link) => links.push(link),
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    return Err(io::Error::other(format!("{address}: {error}")));
                }
                Err(error) => problems.push(format!("{address}: {}", describe(&error))),
            }
        }
        match links.len() > self.addresses.len() / 2 {
            true => Ok(links),
            false => Err(io::Error::other(format!("no majority: {}", problems.join("; ")))),
        }
    }

    /// The text of an error of the first connection, with the likely reason.
    fn advised(&self, problem: &str) -> String {
        let has_tls = self.addresses.iter().any(|address| address.endpoint.has_tls());
        let advice = match has_tls {
            false if problem.contains(CLOSED) => " (a port for TLS needs rediss://)",
            true if problem.contains("InvalidContentType") => {
                " (a port without TLS needs redis://)"
            }
            _ => "",
        };
        format!("{problem}{advice}")
    }
}

/// The host of an address; `None` for a unix socket.
pub(crate) fn host_of(address: &Address) -> Option<String> {
    match &address.endpoint {
        Endpoint::Unix(_) => None,
        _ => {
            let place = place(address);
            let (host, _) = place.rsplit_once(':')?;
            Some(host.trim_start_matches('[').trim_end_matches(']').to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, Topology};
    use crate::lock_kind::LOCK_KINDS;
    use lockwheel_compat::wire::address::Address;
    use std::time::Duration;

    fn target(topology: Topology, urls: &[&str]) -> Target {
        let addresses = urls.iter().map(|url| Address::parse(url).expect(url)).collect();
        let reply_timeout = Duration::from_secs(1);
        Target { addresses, topology, reply_timeout, sentinel_password: None }
    }

    #[test]
    fn rule_has_each_command_once() {
        let kinds: Vec<_> = LOCK_KINDS.iter().filter(|kind| kind.name == "set-nx").collect();
        assert_eq!(
            Target::acl_rule(&kinds),
            "ACL SETUSER lockwheel-prove on >PASSWORD resetkeys ~lockwheel-prove:* \
             resetchannels &lockwheel-prove:* -@all +asking +cluster|slots \
             +del +eval +get +info +pexpire +role +select +set +subscribe +time"
        );
    }

    #[test]
    fn description_has_no_password() {
        let urls = ["redis://user:secret@h:26379", "redis://:secret@i:26379"];
        let check = |topology, expected: &str| {
            assert_eq!(target(topology, &urls).describe(), expected);
        };
        check(
            Topology::Sentinel("mymaster".to_owned()),
            "redis://h:26379, redis://i:26379 (sentinel, primary mymaster)",
        );
        check(Topology::Cluster, "redis://h:26379, redis://i:26379 (cluster)");
    }

    #[test]
    fn learned_address_inherits_user_and_database() {
        let target = target(Topology::Cluster, &["redis://u:p@h:1/2", "redis://i:1"]);
        let learned = target.reached_at("::1", 7).expect("an address");
        assert_eq!(learned.to_string(), "redis://[::1]:7");
        assert_eq!((learned.user.as_deref(), learned.password.as_deref()), (Some("u"), Some("p")));
        assert_eq!(learned.database, Some(2));
        assert_eq!(super::host_of(&learned).as_deref(), Some("::1"));
    }
}
