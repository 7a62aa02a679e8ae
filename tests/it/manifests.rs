//! The manifests for Kubernetes with three nodes, and for Docker Compose: their arguments,
//! variables, probes, volumes and ports, with processes of this machine in place of containers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use lockwheel_tests::cluster;
use lockwheel_tests::daemon::{Daemon, Folder, command, run};
use lockwheel_tests::process::{eventually, output};
use lockwheel_tests::redis_server::free_port;
use lockwheel_tests::wire::Wire;
use serde_json::Value;

use crate::boundaries::{read, root};
use crate::packaging::documents;

/// The configuration in the image.
const CONFIGURATION: &str = "/etc/lockwheel/lockwheel.conf";

/// The password that a manifest takes from a secret.
const PASSWORD: &str = "secret";

type Variables = Vec<(String, String)>;

/// What a manifest says of one container.
struct Container {
    /// The arguments and variables for the first start of a node, which begins a cluster.
    first: Option<(Vec<String>, Variables)>,
    arguments: Vec<String>,
    variables: Variables,
    liveness: Option<Vec<String>>,
    readiness: Vec<String>,
}

/// A container on this machine: a directory in place of its volume, and other ports.
struct Place {
    container: Container,
    folder: Folder,
    dir: String,
    port: u16,
    raft_port: u16,
}

impl Place {
    fn new(container: Container) -> Place {
        let folder = Folder::new();
        let dir = folder.path("volume");
        fs::create_dir(&dir).expect("a directory");
        Place { container, folder, dir, port: free_port(), raft_port: free_port() }
    }

    /// The program with the arguments and variables of a container.
    fn command(&self, arguments: &[String], variables: &[(String, String)]) -> Command {
        let file = root().join("packages/image/lockwheel.conf");
        let file = fs::canonicalize(file).expect("a file").display().to_string();
        let local = |word: &String| match word.as_str() {
            CONFIGURATION => file.clone(),
            _ => word.clone(),
        };
        let mut arguments: Vec<String> = arguments.iter().map(local).collect();
        let port = self.port.to_string();
        let own = ["--port", &port, "--bind", "127.0.0.1", "--dir", &self.dir];
        arguments.extend(own.map(str::to_owned));
        let mut command = command(&self.folder, &arguments);
        command.envs(variables.iter().map(|(name, value)| match name.as_str() {
            // There is no DNS of a cluster.
            "LOCKWHEEL_RAFT_ANNOUNCE_IP" => (name.clone(), "127.0.0.1".to_owned()),
            "LOCKWHEEL_RAFT_PORT" => (name.clone(), self.raft_port.to_string()),
            _ => (name.clone(), value.clone()),
        }));
        // A busy machine may not run a process for a while.
        if variables.iter().any(|(name, _)| name == "LOCKWHEEL_RAFT_PORT") {
            command.env("LOCKWHEEL_RAFT_ELECTION_TIMEOUT", "2000");
        }
        command
    }

    /// Runs the first start to its end. The words replace `init`.
    fn start_first(&self, words: &[&str]) {
        let (arguments, variables) = self.container.first.as_ref().expect("a first start");
        assert_eq!(arguments.iter().filter(|word| *word == "init").count(), 1);
        let arguments = arguments.iter().flat_map(|word| match word.as_str() {
            "init" => words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(),
            _ => vec![word.clone()],
        });
        let arguments: Vec<String> = arguments.collect();
        let ended = output(&mut self.command(&arguments, variables)).expect("the program runs");
        let log = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && log.contains("bye bye"), "{log}");
    }

    /// Starts the container, which may not be ready when this returns.
    fn start(&self) -> Daemon {
        let Container { arguments, variables, .. } = &self.container;
        Daemon::spawn(Folder::new(), self.command(arguments, variables), "")
    }

    /// What a command of `lockwheel cli` prints in the container, if it succeeds.
    fn cli(&self, words: &[String]) -> Option<String> {
        let words = words.iter().skip_while(|word| *word != "cli").skip(1).cloned();
        let port = self.port.to_string();
        let first = ["cli", "-p", &port].map(str::to_owned);
        let mut probe = command(&self.folder, &first.into_iter().chain(words).collect::<Vec<_>>());
        let is_password = |(name, _): &&(String, String)| name == "REDISCLI_AUTH";
        probe.env_remove("REDISCLI_AUTH");
        probe.envs(self.container.variables.iter().filter(is_password).cloned());
        let ended = output(&mut probe).expect("the program runs");
        ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    fn is_ready(&self) -> bool {
        self.cli(&self.container.readiness).is_some()
    }

    /// Takes a lock at this address, as a client with the password.
    fn take_lock(address: SocketAddr) {
        let mut wire = Wire::connect(address, 2);
        assert!(wire.ask("SET lock token NX PX 600000").starts_with("-NOAUTH"));
        assert_eq!(wire.ask(&format!("AUTH {PASSWORD}")), "+OK\r\n");
        assert_eq!(wire.ask("SET lock token NX PX 600000"), "+OK\r\n");
        assert_eq!(wire.ask("SET lock other NX PX 600000"), "$-1\r\n");
    }

    /// Whether a client of this container sees the lock.
    fn has_lock(&self) -> bool {
        let words = ["cli", "-e", "get", "lock"].map(str::to_owned);
        self.cli(&words).is_some_and(|value| value.trim() == "token")
    }
}

/// The words of a list.
fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|word| text(word).to_owned()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn value_of<'a>(variables: &'a [(String, String)], name: &str) -> &'a str {
    let found = variables.iter().find(|(other, _)| other == name);
    let Some((_, value)) = found else { panic!("no variable {name}") };
    value
}

/// The value of a directive in the configuration of the image.
fn configured(name: &str) -> String {
    let configuration = read(&root().join("packages/image/lockwheel.conf"));
    let mut values = configuration.lines().filter_map(|line| line.strip_prefix(name));
    values.find_map(|value| value.strip_prefix(' ')).expect(name).to_owned()
}

/// The variables of a container in Kubernetes.
fn environment(container: &Value) -> Variables {
    let entries = container["env"].as_array().expect("variables").iter();
    let variables = entries.map(|entry| {
        let (value, source) = (&entry["value"], &entry["valueFrom"]);
        let value = match source["fieldRef"]["fieldPath"].as_str() {
            Some("status.podIP") => "127.0.0.1",
            Some("metadata.name") => "lockwheel-node-0",
            Some(field) => panic!("unknown field {field}"),
            None if source["secretKeyRef"]["key"] == "password" => PASSWORD,
            None => text(value),
        };
        (text(&entry["name"]).to_owned(), value.to_owned())
    });
    variables.collect()
}

/// The two manifests for three nodes in Kubernetes; `None` without the library for YAML.
fn kubernetes() -> Option<(Vec<Value>, Vec<Value>)> {
    let nodes = documents("packages/kubernetes/lockwheel-three-nodes.yaml")?;
    Some((nodes, documents("packages/kubernetes/lockwheel-node.yaml")?))
}

fn pod_container(owner: &Value) -> &Value {
    &owner["spec"]["template"]["spec"]["containers"][0]
}

/// The file for Docker Compose, with its services.
fn services(path: &str) -> Option<Value> {
    let mut documents = documents(path)?;
    assert_eq!(documents.len(), 1);
    Some(documents.remove(0))
}

/// A container of Docker Compose.
fn composed(service: &Value) -> Container {
    let entries = service["environment"].as_object().expect("variables").iter();
    let value = |value: &Value| match text(value) {
        "${LOCKWHEEL_PASSWORD:?}" => PASSWORD.to_owned(),
        value => value.to_owned(),
    };
    Container {
        first: None,
        arguments: words(&service["command"]),
        variables: entries.map(|(name, entry)| (name.clone(), value(entry))).collect(),
        liveness: None,
        readiness: words(&service["healthcheck"]["test"]),
    }
}

/// Three nodes are started as a manifest starts them, lose their majority, and are replaced.
fn try_nodes(containers: [Container; 3]) {
    let places = containers.map(Place::new);
    let mut daemons = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let mut with_empty_volume = place.start();
        with_empty_volume.wait_for("there is no node of a cluster");
        assert!(!with_empty_volume.end().success());
        if index == 0 {
            place.start_first(&["init"]);
        } else {
            let token = run(&["raft", "token", "--dir", &places[0].dir]);
            let token = String::from_utf8_lossy(&token.stdout).into_owned();
            place.start_first(&["join", token.trim()]);
        }
        daemons.push(place.start());
        eventually("a ready node", || place.is_ready());
        cluster::wait_for_leader(&places[0].dir, index + 1).expect("the nodes vote");
    }
    let leader = cluster::wait_for_leader(&places[0].dir, 3).expect("a leader");
    Place::take_lock(leader.parse().expect("an address for clients"));
    for place in &places {
        eventually("the lock on each node", || place.has_lock());
    }

    daemons.truncate(1);
    eventually("a node without a majority", || !places[0].is_ready());
    if let Some(liveness) = &places[0].container.liveness {
        assert!(places[0].cli(liveness).is_some(), "{liveness:?}");
    }
    // The same volumes and arguments.
    daemons.extend(places[1..].iter().map(Place::start));
    for place in &places {
        eventually("a ready node with the lock", || place.is_ready() && place.has_lock());
    }
}

#[test]
fn nodes_of_the_manifest_for_kubernetes_form_a_cluster() {
    let Some((nodes, first)) = kubernetes() else { return };
    let (container, job) = (pod_container(&nodes[2]), pod_container(&first[1]));
    try_nodes([(); 3].map(|()| Container {
        first: Some((words(&job["args"]), environment(job))),
        arguments: words(&container["args"]),
        variables: environment(container),
        liveness: Some(words(&container["livenessProbe"]["exec"]["command"])),
        readiness: words(&container["readinessProbe"]["exec"]["command"]),
    }));
}

#[test]
fn nodes_of_the_manifest_for_kubernetes_find_each_other_and_keep_their_volumes() {
    let Some((nodes, first)) = kubernetes() else { return };
    let [service, budget, set] = &nodes[..] else { panic!("{nodes:?}") };
    let kinds = [service, budget, set].map(|document| text(&document["kind"]));
    assert_eq!(kinds, ["Service", "PodDisruptionBudget", "StatefulSet"]);
    let (spec, name) = (&set["spec"], text(&set["metadata"]["name"]));
    let (pod, labels) = (&spec["template"]["spec"], &spec["template"]["metadata"]["labels"]);
    assert_eq!(spec["replicas"], 3);
    // Two nodes elect a leader, so the first pod must not wait until it is ready alone.
    assert_eq!(spec["podManagementPolicy"], "Parallel");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    let affinity = &pod["affinity"]["podAntiAffinity"];
    let rule = &affinity["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(rule["topologyKey"], "kubernetes.io/hostname");
    for selected in [
        &spec["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
        &rule["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selected, labels);
    }

    let container = pod_container(set);
    let variables = environment(container);
    let domain = text(&service["metadata"]["name"]);
    assert_eq!(spec["serviceName"], domain);
    let announced = value_of(&variables, "LOCKWHEEL_RAFT_ANNOUNCE_IP");
    assert_eq!(announced, format!("$(POD_NAME).{domain}"));
    for ports in [&container["ports"], &service["spec"]["ports"]] {
        let names = ports.as_array().expect("ports").iter().map(|port| text(&port["name"]));
        assert_eq!(names.collect::<Vec<_>>(), ["redis", "raft"]);
        let number = |port: &Value| port["containerPort"].as_u64().or(port["port"].as_u64());
        let numbers = [&ports[0], &ports[1]].map(number).map(|port| port.unwrap_or(0).to_string());
        assert_eq!(numbers[0], configured("port"));
        assert_eq!(numbers[1], value_of(&variables, "LOCKWHEEL_RAFT_PORT"));
    }

    let [claim, job] = &first[..] else { panic!("{first:?}") };
    let template = &spec["volumeClaimTemplates"][0];
    assert_eq!(template["spec"], claim["spec"]);
    assert_eq!(template["spec"]["accessModes"], Value::from(vec!["ReadWriteOncePod"]));
    let claimed = text(&claim["metadata"]["name"]);
    assert_eq!(claimed, format!("{}-{name}-0", text(&template["metadata"]["name"])));
    let first_pod = &job["spec"]["template"];
    assert_ne!(&first_pod["metadata"]["labels"], labels);
    assert_eq!(first_pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], claimed);
    let own = format!("{name}-0.{domain}");
    assert_eq!(value_of(&environment(pod_container(job)), "LOCKWHEEL_RAFT_ANNOUNCE_IP"), own);
    for container in [container, pod_container(job)] {
        assert_eq!(container["volumeMounts"][0]["mountPath"], configured("dir"));
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    }
}

#[test]
fn nodes_of_the_file_for_docker_compose_form_a_cluster() {
    let file = services("packages/compose/lockwheel-three-nodes.yaml");
    let Some(file) = file else { return };
    try_nodes(["node-1", "node-2", "node-3"].map(|name| {
        let service = &file["services"][name];
        let mut container = composed(service);
        assert_eq!(value_of(&container.variables, "LOCKWHEEL_RAFT_ANNOUNCE_IP"), name);
        let raft_port = value_of(&container.variables, "LOCKWHEEL_RAFT_PORT");
        assert_eq!(words(&service["expose"]), [&*configured("port"), raft_port]);
        assert_eq!(words(&service["volumes"]), [format!("{name}:{}", configured("dir"))]);
        assert!(file["volumes"].get(name).is_some(), "{name}");
        // As docs/deploy.md runs it: `docker compose run`.
        let arguments = ["raft", "init", CONFIGURATION, "--end-with-stdin", "yes"];
        container.first =
            Some((arguments.map(str::to_owned).to_vec(), container.variables.clone()));
        container
    }));
}

#[test]
fn server_of_the_file_for_docker_compose_serves() {
    let Some(file) = services("packages/compose/lockwheel.yaml") else { return };
    let service = &file["services"]["lockwheel"];
    let port = configured("port");
    assert_eq!(words(&service["ports"]), [format!("127.0.0.1:{port}:{port}")]);
    assert_eq!(words(&service["volumes"]), [format!("data:{}", configured("dir"))]);
    let place = Place::new(composed(service));
    let mut daemon = place.start();
    daemon.wait_for_port();
    eventually("a ready server", || place.is_ready());
    Place::take_lock((Ipv4Addr::LOCALHOST, place.port).into());
    drop(daemon);
    let _again = place.start();
    eventually("the server with the lock", || place.has_lock());
}
