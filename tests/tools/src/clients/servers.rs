//! The servers of a suite, all of one kind and new for each suite: on free loopback ports, in their
//! own folder, ended when the value is dropped.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lockwheel_tests::certificates::Certificates;
use lockwheel_tests::cluster;
use lockwheel_tests::daemon::Folder;
use lockwheel_tests::frame;
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::suites::ServerProgram;
use lockwheel_tests::wire::Wire;

/// Number of servers for locks on a majority: enough for every test of a suite that ends some of
/// its servers to have its own.
const DISPOSABLE_COUNT: usize = 16;
/// The nodes of the cluster that the main server may be in.
const NODES: usize = 3;
/// Number of attempts to find a port: another program can take a free one before the server binds
/// it.
const PORT_ATTEMPTS: usize = 5;

/// All servers of one suite.
pub(crate) struct Servers {
    kind: ServerProgram,
    main: Server,
    /// The port for TLS of `main`.
    tls_port: u16,
    /// The other nodes of the cluster of `main`.
    followers: Vec<Server>,
    certificates: Certificates,
    disposable: Vec<Server>,
    cluster: Option<Server>,
    sentinel: Option<Server>,
    watched: Option<Server>,
    /// The servers that could not be started, and why.
    pub(crate) missing: Vec<String>,
    /// Their folder.
    pub(crate) folder: Folder,
}

impl Servers {
    /// Starts the servers. A cluster and a sentinel may be missing, a server may not.
    ///
    /// With `verify_effects`, a second engine verifies the effects of Lockwheel's commands. With
    /// `replicated`, the main server leads a cluster, and a follower answers as the sentinel.
    pub(crate) fn start(
        kind: ServerProgram,
        verify_effects: bool,
        replicated: bool,
    ) -> Result<Servers, String> {
        let folder = Folder::new();
        let verifies = verify_effects && kind == ServerProgram::Lockwheel;
        let verify_effects = if verifies { VERIFY_EFFECTS } else { &[] };
        let launch = Launch { program: kind.program()?, verify_effects, folder: &folder };
        let certificates = Certificates::new();
        let ((main, tls_port), followers) = match replicated {
            true => launch.nodes(&certificates)?,
            false => (launch.server_with_tls("main", &[], &certificates, &[])?, Vec::new()),
        };
        let disposable = (0..DISPOSABLE_COUNT)
            .map(|number| launch.server(&format!("disposable-{number}"), &[]))
            .collect::<Result<_, _>>()?;
        let mut missing = Vec::new();
        let mut note = |problem| missing.push(problem);
        let cluster = launch.cluster().map_err(&mut note).ok();
        let sentinel = (!replicated).then(|| launch.sentinel().map_err(&mut note).ok());
        let (watched, sentinel) = sentinel.flatten().unzip();
        Ok(Servers {
            kind,
            main,
            tls_port,
            followers,
            certificates,
            disposable,
            cluster,
            sentinel,
            watched,
            missing,
            folder,
        })
    }

    /// The environment of the suite.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let disposable: Vec<_> = self.disposable.iter().map(Server::url).collect();
        let mut environment = vec![
            ("REDIS_URL", self.main.url()),
            ("REDIS_TLS_URL", format!("rediss://127.0.0.1:{}", self.tls_port)),
            ("REDIS_TLS_CA", self.certificates.path("ca.crt")),
            ("REDIS_SERVERS", disposable.join(",")),
        ];
        let cluster = self.cluster.iter().map(|server| ("REDIS_CLUSTER_URL", server.url()));
        environment.extend(cluster);
        // Every node answers as a sentinel.
        let sentinel = self.sentinel.as_ref().or(self.followers.first());
        environment.extend(sentinel.map(|server| ("REDIS_SENTINEL_URL", server.url())));
        environment
    }

    /// The ports of the servers that store keys.
    pub(crate) fn keepers(&self) -> impl Iterator<Item = SocketAddr> {
        let optional = self.cluster.iter().chain(&self.watched);
        std::iter::once(&self.main).chain(&self.disposable).chain(optional).map(Server::address)
    }

    /// The version that the server reports.
    pub(crate) fn version(&self) -> String {
        let info = self.main.connect().call(&["INFO", "server"]);
        let info = String::from_utf8_lossy(&info);
        let field = match self.kind {
            ServerProgram::Redis => "redis_version:",
            ServerProgram::Lockwheel => "lockwheel_version:",
        };
        let version = info.lines().find_map(|line| line.strip_prefix(field));
        version.unwrap_or("?").to_owned()
    }

    /// The servers that ended other than by a command.
    pub(crate) fn deaths(&mut self) -> Vec<String> {
        let lasting = [Some(&mut self.main), self.cluster.as_mut(), self.sentinel.as_mut()];
        let lasting = lasting.into_iter().flatten().chain(self.watched.as_mut());
        let lasting = lasting.chain(&mut self.followers);
        let mut deaths = Vec::new();
        for server in lasting {
            if let Ok(Some(status)) = server.child.try_wait() {
                deaths.push(format!("{} ended, {status}: {}", server.name, server.last_words()));
            }
        }
        for server in &mut self.disposable {
            if let Ok(Some(status)) = server.child.try_wait()
                && !status.success()
            {
                deaths.push(format!("{} died, {status}: {}", server.name, server.last_words()));
            }
        }
        deaths
    }
}

/// Starts servers of one kind.
struct Launch<'a> {
    /// The program, and the words before the server's own arguments.
    program: Vec<String>,
    verify_effects: &'a [&'a str],
    folder: &'a Folder,
}

const VERIFY_EFFECTS: &[&str] = &["--verify-effects", "yes"];
const USUAL: &[&str] = &["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];

impl Launch<'_> {
    /// A server with these further arguments.
    fn server(&self, name: &str, more: &[&str]) -> Result<Server, String> {
        self.spawn(name, &[USUAL, self.verify_effects, more].concat())
    }

    /// A server with a port for TLS, which is also returned, and with these words before its
    /// directives.
    fn server_with_tls(
        &self,
        name: &str,
        words: &[&str],
        certificates: &Certificates,
        more: &[&str],
    ) -> Result<(Server, u16), String> {
        let port = free_port();
        let tls = certificates.options(port);
        let tls: Vec<_> =
            tls.iter().map(String::as_str).chain(["--tls-auth-clients", "no"]).collect();
        let arguments = [words, USUAL, self.verify_effects, &tls, more].concat();
        Ok((self.spawn(name, &arguments)?, port))
    }

    /// The nodes of a cluster: the leader with its port for TLS, and the others.
    fn nodes(&self, certificates: &Certificates) -> Result<((Server, u16), Vec<Server>), String> {
        let name = |index| format!("node-{index}");
        let first = self.folder.path(&name(0));
        let mut nodes = cluster::start(&first, NODES, |index, words| {
            let dir = self.folder.path(&name(index));
            fs::create_dir(&dir).map_err(|error| format!("{dir}: {error}"))?;
            let port = free_port().to_string();
            // The suites know one address: a machine that stalls for a second is no reason to elect
            // another leader.
            let more = ["--dir", &dir, "--raft-port", &port, "--raft-election-timeout", "5000"];
            self.server_with_tls(&name(index), words, certificates, &more)
        })?;
        let leader = cluster::wait_for_leader(&first, NODES)?;
        let index = nodes.iter().position(|(node, _)| node.address().to_string() == leader);
        let leader = nodes.swap_remove(index.ok_or("no node has the address of the leader")?);
        Ok((leader, nodes.into_iter().map(|(node, _)| node).collect()))
    }

    /// One node that has all slots.
    fn cluster(&self) -> Result<Server, String> {
        let bus_port = free_port().to_string();
        let server = self.server(
            "cluster",
            &[
                "--cluster-enabled",
                "yes",
                "--cluster-config-file",
                "cluster-nodes.conf",
                "--cluster-announce-ip",
                "127.0.0.1",
                "--cluster-port",
                &bus_port,
            ],
        )?;
        let mut wire = server.connect();
        // A node that forms its own cluster may have them already and reply with an error.
        let _ = wire.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        let mut info = Vec::new();
        eventually("the cluster's state", || {
            info = wire.call(&["CLUSTER", "INFO"]);
            info.starts_with(b"-") || contains(&info, b"cluster_state:ok")
        });
        if info.starts_with(b"-") {
            return Err(format!("cluster: {}", frame::show(&info)));
        }
        Ok(server)
    }

    /// A master and a sentinel that monitors it.
    fn sentinel(&self) -> Result<(Server, Server), String> {
        let watched = self.server("watched", &[])?;
        let conf = self.folder.path("sentinel.conf");
        let text = format!("sentinel monitor mymaster 127.0.0.1 {} 1\n", watched.port);
        fs::write(&conf, text).map_err(|error| error.to_string())?;
        let sentinel = self.spawn("sentinel", &[&conf, "--sentinel", "--bind", "127.0.0.1"])?;
        let answer = sentinel.connect().call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]);
        if !contains(&answer, watched.port.to_string().as_bytes()) {
            return Err(format!("sentinel: {}", frame::show(&answer)));
        }
        Ok((watched, sentinel))
    }

    fn spawn(&self, name: &str, arguments: &[&str]) -> Result<Server, String> {
        let mut problem = String::new();
        for _ in 0..PORT_ATTEMPTS {
            let mut server = self.spawn_on(name, free_port(), arguments)?;
            if server.is_ready() {
                return Ok(server);
            }
            problem = format!("{name} does not start: {}", server.last_words());
        }
        Err(problem)
    }

    fn spawn_on(&self, name: &str, port: u16, arguments: &[&str]) -> Result<Server, String> {
        let log = PathBuf::from(self.folder.path(&format!("{name}.log")));
        let file = File::create(&log).map_err(|error| error.to_string())?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        let (program, before) = self.program.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        // Variables with this prefix are settings.
        for (variable, _) in std::env::vars().filter(|(it, _)| it.starts_with("LOCKWHEEL_")) {
            command.env_remove(variable);
        }
        command.args(before).args(arguments).args(["--port", &port.to_string()]);
        command.current_dir(self.folder.path(""));
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        let child = child.map_err(|error| format!("{program}: {error}"))?;
        Ok(Server { name: name.to_owned(), port, log, child })
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// One server.
struct Server {
    name: String,
    port: u16,
    log: PathBuf,
    child: Child,
}

impl Server {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.address(), 2)
    }

    /// Waits until the server listens or has ended.
    fn is_ready(&mut self) -> bool {
        let (address, mut has_ended) = (self.address(), false);
        eventually("a server that listens", || {
            has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
            has_ended || TcpStream::connect(address).is_ok()
        });
        !has_ended
    }

    /// The end of the log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let mut lines: Vec<_> = log.lines().rev().take(3).map(str::trim).collect();
        lines.reverse();
        lines.join(" / ")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
