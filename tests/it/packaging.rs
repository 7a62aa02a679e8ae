//! The packages for servers: an archive for Linux, a Debian package, a container image, a manifest
//! for Kubernetes, and the workflow that builds them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use lockwheel_tests::daemon::{Daemon, Folder, command, program};
use lockwheel_tests::left_out;
use lockwheel_tests::process::output;
use serde_json::Value;

use crate::boundaries::{read, root};

/// The documents of a YAML file, read by Python's library; `None` if it is not installed.
pub(crate) fn documents(path: &str) -> Option<Vec<Value>> {
    let script = "import json, sys, yaml\n\
        print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1]))), default=str))";
    let output = output(Command::new("python3").args(["-c", script]).arg(root().join(path)));
    let output = output.expect("Python runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("No module named 'yaml'") {
        left_out::without("python3-yaml");
        return None;
    }
    assert!(output.status.success(), "{path}: {errors}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// The values of a key in a unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn unit_waits_for_the_server_and_takes_rights_away() {
    let unit = read(&root().join("packages/linux/lockwheel.service"));
    for (key, value) in [
        ("Type", "notify"),
        ("ExecStart", "/usr/bin/lockwheel /etc/lockwheel/lockwheel.conf --supervised systemd"),
        ("User", "lockwheel"),
        ("StateDirectory", "lockwheel"),
        ("CapabilityBoundingSet", ""),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("MemoryDenyWriteExecute", "yes"),
    ] {
        assert_eq!(values(&unit, key), [value], "{key}");
    }
    // maxclients, and the descriptors that the program keeps for files and other connections.
    assert_eq!(values(&unit, "LimitNOFILE"), ["12288"]);
    assert_eq!(values(&unit, "ExecReload"), ["/bin/sh -c \"kill -HUP $MAINPID\""]);
}

#[test]
fn unit_is_accepted_by_systemd() {
    if output(Command::new("systemd-analyze").arg("--version")).is_err() {
        return left_out::without("systemd-analyze");
    }
    let folder = Folder::new();
    let path = folder.path("lockwheel.service");
    let unit = read(&root().join("packages/linux/lockwheel.service"));
    // systemd looks for the program.
    let here = unit.replace("/usr/bin/lockwheel", &program().display().to_string());
    fs::write(&path, here).expect("a file");
    let output = output(Command::new("systemd-analyze").args(["verify", &path]));
    let output = output.expect("systemd-analyze runs");
    let problems = String::from_utf8_lossy(&output.stderr);
    let problems: Vec<&str> =
        problems.lines().filter(|line| line.contains("lockwheel.service")).collect();
    assert!(problems.is_empty(), "{problems:?}");
}

/// Both configurations start a server with a log; only the directory and the port differ here.
#[test]
fn configurations_of_the_packages_start_a_server() {
    for package in ["linux", "image"] {
        let folder = Folder::new();
        let file = root().join("packages").join(package).join("lockwheel.conf");
        let file = fs::canonicalize(file).expect("a file").display().to_string();
        let data = folder.path("data");
        let arguments = [file.as_str(), "--port", "0", "--bind", "127.0.0.1", "--dir", &data];
        let mut daemon = Daemon::start_in(folder, &arguments, "");
        let port = daemon.wait_for_port();
        let mut wire = daemon.connect(port);
        assert_eq!(wire.ask("SET lock token NX PX 60000"), "+OK\r\n", "{package}");
        let shown = wire.ask("CONFIG GET appendonly");
        assert!(shown.contains("yes"), "{package}: {shown}");
        assert!(!daemon.log_text.contains(" # "), "{package}: {}", daemon.log_text);
    }
}

#[test]
fn pods_never_share_a_directory() {
    let Some(documents) = documents("packages/kubernetes/lockwheel.yaml") else { return };
    let [service, set] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!((&service["kind"], &set["kind"]), (&"Service".into(), &"StatefulSet".into()));
    let spec = &set["spec"];
    assert_eq!(spec["serviceName"], service["metadata"]["name"]);
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    assert_eq!(service["spec"]["selector"], spec["template"]["metadata"]["labels"]);
    assert_eq!(spec["replicas"], 1);
    let claim = &spec["volumeClaimTemplates"][0];
    assert_eq!(claim["spec"]["accessModes"], Value::from(vec!["ReadWriteOncePod"]));
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["volumes"], Value::Null);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["name"], claim["metadata"]["name"]);
    let configuration = read(&root().join("packages/image/lockwheel.conf"));
    let directory = container["volumeMounts"][0]["mountPath"].as_str().expect("a path");
    assert!(configuration.lines().any(|line| line == format!("dir {directory}")));
    let rights = &container["securityContext"];
    assert_eq!(rights["allowPrivilegeEscalation"], false);
    assert_eq!(rights["readOnlyRootFilesystem"], true);
    assert_eq!(rights["capabilities"]["drop"], Value::from(vec!["ALL"]));
}

/// The probes of the manifest and the health check of the image, on a server with a password.
#[test]
fn probes_succeed_when_the_server_serves() {
    let mut daemon = Daemon::start(&["--port", "0", "--requirepass", "secret"]);
    let port = daemon.wait_for_port().to_string();
    let probe = |words: &[Value], password: Option<&str>| {
        let words = words.iter().map(|word| word.as_str().expect("a word"));
        let words: Vec<&str> = words.skip_while(|word| *word != "cli").skip(1).collect();
        let folder = Folder::new();
        let mut probe = command(&folder, &["cli", "-p", &port]);
        probe.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        probe.env_remove("REDISCLI_AUTH");
        probe.envs(password.map(|password| ("REDISCLI_AUTH", password)));
        probe.status().expect("the program runs").success()
    };
    let dockerfile = read(&root().join("packages/image/Dockerfile"));
    let check = dockerfile.lines().find_map(|line| line.trim().strip_prefix("CMD [\"/usr"));
    let check = format!("[\"/usr{}", check.expect("a health check"));
    let check: Vec<Value> = serde_json::from_str(&check).expect("a list");
    assert!(probe(&check, Some("secret")) && probe(&check, None), "{check:?}");
    let Some(documents) = documents("packages/kubernetes/lockwheel.yaml") else { return };
    let container = &documents[1]["spec"]["template"]["spec"]["containers"][0];
    for (kind, without_password) in [("livenessProbe", true), ("readinessProbe", false)] {
        let words = container[kind]["exec"]["command"].as_array().expect("a command");
        assert!(probe(words, Some("secret")), "{kind}");
        assert_eq!(probe(words, None), without_password, "{kind}");
    }
}

/// The logic is in the program that both call.
#[test]
fn workflows_only_call_the_checks() {
    let Some(checks) = documents(".github/workflows/ci.yml") else { return };
    let Some(release) = documents(".github/workflows/release.yml") else { return };
    let commands = |workflow: &Value| {
        let steps = workflow["jobs"]["checks"]["steps"].as_array().expect("steps").clone();
        let runs = steps.into_iter().filter_map(|step| Some(step["run"].as_str()?.to_owned()));
        runs.collect::<Vec<_>>()
    };
    assert_eq!(commands(&checks[0]), [".ci/run \"$LEVEL\""]);
    assert_eq!(commands(&release[0]), [".ci/run full"]);
    assert_eq!(release[0]["jobs"]["build"]["needs"], "checks");
}

#[test]
fn workflow_builds_packages_that_exist() {
    let Some(documents) = documents(".github/workflows/release.yml") else { return };
    let build = &documents[0]["jobs"]["build"];
    let targets = build["strategy"]["matrix"]["include"].as_array().expect("targets");
    let targets: Vec<&str> = targets.iter().filter_map(|it| it["target"].as_str()).collect();
    assert_eq!(targets, ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]);
    let steps = build["steps"].as_array().expect("steps");
    let commands: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
    let commands = commands.join("\n");
    let (_, packages) = commands.split_once("packages/build --target ").expect("the build");
    let packages = packages.lines().next().expect("a line").rsplit("out ").next();
    for package in packages.expect("packages").split(' ') {
        assert!(root().join("packages").join(package).join("build").exists(), "{package}");
    }
    for path in ["packages/prometheus/alerts.yml", "packages/prometheus/scrape.yml"] {
        assert!(self::documents(path).is_some_and(|documents| documents.len() == 1));
    }
}

/// Each alert names its section in the runbook, which has no others. The dashboard shows what the
/// alert looks at.
#[test]
fn every_alert_has_a_section_in_the_runbook_and_its_figures_on_the_dashboard() {
    let Some(files) = documents("packages/prometheus/alerts.yml") else { return };
    let groups = files[0]["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules"));
    let rules: Vec<&Value> = rules.collect();
    let page = read(&root().join("docs/runbook.md"));
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    let headings = sections.iter().filter_map(|section| section.lines().next());
    let names: Vec<&str> = rules.iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert_eq!(headings.collect::<Vec<_>>(), names);
    let dashboard = read(&root().join("packages/prometheus/grafana-dashboard.json"));
    for (rule, section) in rules.into_iter().zip(sections) {
        let name = rule["alert"].as_str().expect("a name");
        let anchor = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], anchor, "{name}");
        for part in ["**Meaning.** ", "**See.** ", "**Do.** ", "**Do not** "] {
            assert!(section.contains(&format!("\n\n{part}")), "{name}: {part}");
        }
        let expression = rule["expr"].as_str().expect("an expression");
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for figure in words.filter(|word| word.starts_with("lockwheel_")) {
            assert!(dashboard.contains(&format!("{figure}{{")), "{name}: {figure}");
        }
    }
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = output(Command::new(program).args(arguments).current_dir(folder));
    let Output { status, stdout, stderr } =
        output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let printed = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{program} {arguments:?}: {printed}");
    printed.into_owned()
}

/// Names a folder with packages that `packages/build` has built.
const PACKAGES_VARIABLE: &str = "LOCKWHEEL_TEST_PACKAGES";

/// Looks into the packages. That of a container is there only if its program is linked statically.
#[test]
#[ignore = "it needs built packages: `.ci/run package-servers` runs it"]
fn packages_for_servers_are_complete() {
    let folder = std::env::var(PACKAGES_VARIABLE).expect(PACKAGES_VARIABLE);
    let folder = Path::new(&folder);
    check_archive(&folder.join("linux"));
    check_debian_package(&folder.join("debian"));
    let container = folder.join("image/root");
    if container.exists() {
        // The package names no dependency on the C library, which another program has.
        run("sh", &["-c", "lintian --allow-root --fail-on error *.deb"], &folder.join("debian"));
        check_image(&container);
    }
}

fn check_archive(folder: &Path) {
    run("sh", &["-c", "sha256sum --check *.sha256 && tar --extract --file *.tar.gz"], folder);
    let version = run("sh", &["-c", "lockwheel-*-linux/lockwheel --version"], folder);
    assert!(version.contains("lockwheel"), "{version}");
    let files = run("sh", &["-c", "ls lockwheel-*-linux"], folder);
    for file in ["lockwheel.conf", "lockwheel.service", "LICENSE-MIT", "README.md", "prometheus"] {
        assert!(files.contains(file), "{files}");
    }
}

fn check_debian_package(folder: &Path) {
    let contents = run("sh", &["-c", "dpkg-deb --contents *.deb"], folder);
    for (mode, path) in [
        ("-rwxr-xr-x", "./usr/bin/lockwheel"),
        ("-rw-r-----", "./etc/lockwheel/lockwheel.conf"),
        ("-rw-r--r--", "./usr/lib/systemd/system/lockwheel.service"),
        ("-rw-r--r--", "./usr/share/doc/lockwheel/copyright"),
        ("-rw-r--r--", "./usr/share/lockwheel/prometheus/alerts.yml"),
    ] {
        let is_it = |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
        assert!(contents.lines().any(is_it), "{path}: {contents}");
    }
    run("sh", &["-c", "dpkg-deb --control *.deb control"], folder);
    let control = folder.join("control");
    assert_eq!(read(&control.join("conffiles")), "/etc/lockwheel/lockwheel.conf\n");
    let fields = read(&control.join("control"));
    assert!(fields.contains("\nDepends: adduser\n"), "{fields}");
    for (script, command) in [("postinst", "adduser --system"), ("prerm", "deb-systemd-invoke")] {
        let text = read(&control.join(script));
        assert!(text.contains(command) && !text.contains("#DEBHELPER#"), "{script}: {text}");
    }
}

/// Runs the root of the container as its user, with nothing of this system.
fn check_image(container: &Path) {
    if !nix::unistd::geteuid().is_root() {
        lockwheel_tests::say("skipped: only root can change the root directory");
        return;
    }
    run("chown", &["--recursive", "65532:65532", "."], container);
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command.args(["--userspec=65532:65532", "."]).args(arguments).current_dir(container);
        command
    };
    let server = ["/usr/bin/lockwheel", "/etc/lockwheel/lockwheel.conf", "--port", "0"];
    let mut daemon = Daemon::spawn(Folder::new(), inside(&server), "");
    let port = daemon.wait_for_port().to_string();
    let ping = output(&mut inside(&["/usr/bin/lockwheel", "cli", "-p", &port, "ping"]));
    assert_eq!(ping.expect("chroot runs").stdout, b"PONG\n");
    daemon.signal("TERM");
    assert!(daemon.end().success());
}
