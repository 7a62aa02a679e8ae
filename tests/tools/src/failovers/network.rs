//! The hosts of the servers: network namespaces on a bridge, so that the network can be divided;
//! or addresses of the loopback interface.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use lockwheel_prove::demo::place::Place;
use lockwheel_prove::demo::ports::free_port;
use nix::unistd::geteuid;

/// What a host cannot reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The other hosts. Clients reach it.
    Hosts,
    /// Other hosts and clients.
    All,
}

/// The hosts.
pub(crate) struct Network {
    /// The addresses of the hosts.
    hosts: Vec<String>,
    /// The namespace of each host; none on the loopback interface.
    namespaces: Vec<String>,
    bridge: Option<String>,
}

impl Network {
    /// A network of `count` hosts, in namespaces if this machine allows it. Each sends at most
    /// `link_mbit` megabits in a second, if that is given.
    ///
    /// # Errors
    /// The reason why there are no namespaces, with hosts on the loopback interface.
    pub(crate) fn new(count: u8, link_mbit: Option<u32>) -> Result<Network, (Network, String)> {
        // The system frees the names of a network some time after its end.
        static NETWORKS: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let name = format!("lw{process}.{}", NETWORKS.fetch_add(1, Ordering::Relaxed));
        // Several of these programs may run at once.
        let subnet = format!("10.231.{}", process % 256);
        let numbers = || 1..=count;
        let mut network = Network {
            hosts: numbers().map(|number| format!("{subnet}.{number}")).collect(),
            namespaces: Vec::new(),
            bridge: None,
        };
        match network.create(&subnet, &name, link_mbit) {
            Ok(()) => Ok(network),
            Err(reason) => {
                let hosts = numbers().map(|number| format!("127.0.0.{number}")).collect();
                Err((Network { hosts, namespaces: Vec::new(), bridge: None }, reason))
            }
        }
    }

    fn create(&mut self, subnet: &str, bridge: &str, link_mbit: Option<u32>) -> Result<(), String> {
        if !geteuid().is_root() {
            return Err("only root can divide the network".to_owned());
        }
        run(&format!("ip link add {bridge} type bridge"))?;
        self.bridge = Some(bridge.to_owned());
        run(&format!("ip addr add {subnet}.254/24 dev {bridge}"))?;
        run(&format!("ip link set {bridge} up"))?;
        for (index, host) in self.hosts.iter().enumerate() {
            // A name of an interface has 15 characters at most.
            let outside = format!("{bridge}.{index}");
            let name = format!("lockwheel-{outside}");
            run(&format!("ip netns add {name}"))?;
            self.namespaces.push(name.clone());
            run(&format!("ip link add {outside} type veth peer name eth0 netns {name}"))?;
            run(&format!("ip link set {outside} master {bridge} up"))?;
            run(&format!("ip -n {name} addr add {host}/24 dev eth0"))?;
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set eth0 up"))?;
            if let Some(mbit) = link_mbit {
                let shape = format!("tbf rate {mbit}mbit burst 32kb latency 50ms");
                run(&format!("ip netns exec {name} tc qdisc add dev eth0 root {shape}"))?;
            }
            // Found missing now rather than at the first cut.
            run(&format!("ip netns exec {name} iptables -w -S"))?;
        }
        Ok(())
    }

    /// Whether hosts can be cut off.
    pub(crate) fn is_divisible(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// A place on each host, all with the same port.
    pub(crate) fn places(&self) -> Result<Vec<Place>, String> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| &**host).collect();
        // In namespaces, all ports are free.
        let port = free_port(if self.is_divisible() { &[] } else { &hosts })?;
        Ok(hosts.into_iter().map(|host| Place { host: host.to_owned(), port }).collect())
    }

    /// The same command, on a host.
    pub(crate) fn on(&self, index: usize, command: Command) -> Command {
        let Some(namespace) = self.namespaces.get(index) else { return command };
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", namespace]).arg(command.get_program());
        inside.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            inside.current_dir(folder);
        }
        inside
    }

    /// Cuts a host off: what it sends and what is sent to it is lost.
    pub(crate) fn cut(&self, index: usize, cut: Cut) -> Result<(), String> {
        let others: Vec<&str> = match cut {
            Cut::Hosts => {
                let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != index);
                others.map(|(_, host)| &**host).collect()
            }
            Cut::All => vec!["0.0.0.0/0"],
        };
        let namespace = &self.namespaces[index];
        for other in others {
            for rule in [format!("INPUT -i eth0 -s {other}"), format!("OUTPUT -o eth0 -d {other}")]
            {
                run(&format!("ip netns exec {namespace} iptables -w -A {rule} -j DROP"))?;
            }
        }
        Ok(())
    }

    /// Ends all cuts of a host.
    pub(crate) fn heal(&self, index: usize) -> Result<(), String> {
        run(&format!("ip netns exec {} iptables -w -F", self.namespaces[index]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The other end of each pair of interfaces goes with its namespace.
        for namespace in &self.namespaces {
            let _ = run(&format!("ip netns del {namespace}"));
        }
        if let Some(bridge) = &self.bridge {
            let _ = run(&format!("ip link del {bridge}"));
        }
    }
}

/// Runs a line of words.
fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{line}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
