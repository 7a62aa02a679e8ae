//! A server that is compared, and how it is started.

use std::rc::Rc;
use std::time::Duration;

use lockwheel_comparison::Outcome;
use lockwheel_tests::certificates::Certificates;

use crate::measure::log_directory::LogDirectory;
use crate::measure::running::Running;

/// The name of the server that is the lower bound.
pub(crate) const BARE: &str = "bare server";

/// The name of the lower bound of servers with a log.
pub(crate) const FLOOR: &str = "floor";

/// What a server is for the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerType {
    /// Lockwheel of this checkout.
    Lockwheel,
    /// The same, with every script in Lua: measured only by workloads with scripts.
    InLua,
    /// Another build of Lockwheel.
    Build { has_native_locks: bool },
    /// The lower bound: `bare_server.rs`, or the floor of servers with a log.
    Bare,
    /// Another server.
    Other,
}

/// The nodes of a server and how they replicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterType {
    /// One node, with a log that is flushed before each reply.
    One,
    /// Three nodes of Lockwheel, or of the floor.
    Raft,
    /// Three nodes of etcd.
    Etcd,
    /// A Redis with two replicas.
    Replicas,
}

/// A server that is compared.
#[derive(Clone)]
pub(crate) struct ComparedServer {
    /// Its name in the report.
    pub(crate) name: String,
    /// Its version according to `INFO`.
    pub(crate) version: String,
    pub(crate) server_type: ServerType,
    /// Whether it is measured in the first round only, to save time.
    pub(crate) first_round_only: bool,
    /// Its nodes, of which only runs with replication have several.
    pub(crate) nodes: ClusterType,
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// The processor it is bound to, if any.
    pub(crate) core: Option<usize>,
    /// Certificates of its port for TLS, if its clients use that.
    pub(crate) certificates: Option<Rc<Certificates>>,
}

impl ComparedServer {
    /// Starts it with additional arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Outcome<Running> {
        match &self.certificates {
            Some(certificates) => {
                Running::start_with_tls(&self.words, arguments, self.core, certificates)
            }
            None => Running::start(&self.words, arguments, self.core, None),
        }
    }

    /// Starts it like [`ComparedServer::start`], on any processor.
    pub(crate) fn start_anywhere(&self, arguments: &[&str]) -> Outcome<Running> {
        Running::start(&self.words, arguments, None, None)
    }

    /// An empty directory for its log. Each flush takes longer by the delay.
    pub(crate) fn log_directory(&self, flush_delay: Duration) -> Outcome<Rc<LogDirectory>> {
        Ok(Rc::new(LogDirectory::create(&self.words, flush_delay)?))
    }

    /// Starts it with a log in this directory.
    pub(crate) fn start_with_log(
        &self,
        directory: &Rc<LogDirectory>,
        arguments: &[&str],
    ) -> Outcome<Running> {
        Running::start(&self.words, arguments, self.core, Some(directory))
    }

    /// Starts it like [`ComparedServer::start_with_log`], on any processor.
    pub(crate) fn start_with_log_anywhere(
        &self,
        directory: &Rc<LogDirectory>,
        arguments: &[&str],
    ) -> Outcome<Running> {
        Running::start(&self.words, arguments, None, Some(directory))
    }

    /// Whether it is Lockwheel, of any build.
    pub(crate) fn is_lockwheel(&self) -> bool {
        matches!(
            self.server_type,
            ServerType::Lockwheel | ServerType::InLua | ServerType::Build { .. }
        )
    }

    /// Whether it is another build of Lockwheel.
    pub(crate) fn is_build(&self) -> bool {
        matches!(self.server_type, ServerType::Build { .. })
    }

    /// The server to which its ratios are: for Lockwheel, the first other build with the same
    /// nodes, if there is one; otherwise the first server.
    pub(crate) fn base<'a>(&self, servers: &'a [ComparedServer]) -> Option<&'a ComparedServer> {
        let is_base = |it: &&ComparedServer| it.is_build() && it.nodes == self.nodes;
        let build = servers.iter().find(is_base).filter(|it| it.name != self.name);
        build.filter(|_| self.is_lockwheel()).or_else(|| servers.first())
    }

    /// The floor with the same nodes, if it is Lockwheel.
    pub(crate) fn floor<'a>(&self, servers: &'a [ComparedServer]) -> Option<&'a ComparedServer> {
        let is_floor =
            |it: &&ComparedServer| it.server_type == ServerType::Bare && it.name.starts_with(FLOOR);
        let mut floors = servers.iter().filter(is_floor).filter(|it| it.nodes == self.nodes);
        floors.next().filter(|_| self.is_lockwheel())
    }

    /// A server that is started with these words and arguments of each measurement.
    pub(crate) fn new(
        name: &str,
        server_type: ServerType,
        words: Vec<String>,
        core: Option<usize>,
    ) -> ComparedServer {
        ComparedServer {
            name: name.to_owned(),
            version: String::new(),
            server_type,
            first_round_only: false,
            nodes: ClusterType::One,
            words,
            core,
            certificates: None,
        }
    }

    /// A server that cannot be started.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> ComparedServer {
        ComparedServer::new(name, ServerType::Other, Vec::new(), None)
    }

    /// Lockwheel on any processor.
    #[cfg(test)]
    pub(crate) fn lockwheel() -> ComparedServer {
        let program = lockwheel_tests::daemon::program().to_string_lossy().into_owned();
        ComparedServer::new("Lockwheel", ServerType::Lockwheel, vec![program], None)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterType, ComparedServer, ServerType};

    /// A server with this type and these nodes, and the name of its base.
    type Expected<'a> = (&'a str, ServerType, ClusterType, &'a str);

    fn check(expected: &[Expected<'_>]) {
        let server = |&(name, server_type, nodes, _): &Expected<'_>| {
            let server = ComparedServer::new(name, server_type, Vec::new(), None);
            ComparedServer { nodes, ..server }
        };
        let servers: Vec<_> = expected.iter().map(server).collect();
        for (server, (.., base)) in servers.iter().zip(expected) {
            let name = server.base(&servers).map(|it| it.name.as_str());
            assert_eq!(name, Some(*base), "{}", server.name);
        }
    }

    #[test]
    fn base_is_the_first_server_or_another_build_with_the_same_nodes() {
        use ClusterType::{One, Raft, Replicas};
        use ServerType::{Bare, InLua, Lockwheel, Other};
        let build = ServerType::Build { has_native_locks: true };
        check(&[
            ("Redis", Other, One, "Redis"),
            ("Lockwheel", Lockwheel, One, "Redis"),
            ("in Lua", InLua, One, "Redis"),
        ]);
        check(&[
            ("Redis", Other, One, "Redis"),
            ("old", build, One, "Redis"),
            ("older", build, One, "old"),
            ("Lockwheel", Lockwheel, One, "old"),
            ("bare", Bare, One, "Redis"),
        ]);
        check(&[
            ("old, one", build, One, "old, one"),
            ("old, three", build, Raft, "old, one"),
            ("Lockwheel, one", Lockwheel, One, "old, one"),
            ("Lockwheel, three", Lockwheel, Raft, "old, three"),
            ("Redis", Other, Replicas, "old, one"),
        ]);
    }
}
