//! The servers of the comparison, and how each is started on a free port.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockwheel_compat::Address;
use lockwheel_compat::time;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::tls::TlsClient;
use lockwheel_tests::certificates::{Certificates, Validity};
use lockwheel_tests::daemon::{self, Folder};
use lockwheel_tests::redis_server::{self, free_port};
use rustls::version::{TLS12, TLS13};

/// The exit status of a project's `run` if its tool chain is not installed.
const NO_TOOLS: i32 = 77;
/// The time within which a server must listen: the first run downloads and builds.
const START_TIMEOUT_US: i64 = 20 * 60 * 1_000_000;
/// How long to wait between two checks, and for the reply to one.
const GLANCE: Duration = Duration::from_millis(100);
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that the suite is run on.
pub(crate) struct Server {
    /// Its name on the command line and in file names.
    pub(crate) key: &'static str,
    /// Its title on the page.
    pub(crate) title: &'static str,
    /// Its purpose, as a sentence.
    pub(crate) purpose: &'static str,
    /// Whether it is a test double for Redis.
    pub(crate) is_double: bool,
    origin: Origin,
}

/// The source of a server.
enum Origin {
    /// This workspace.
    Own,
    /// A program on the path.
    Path(&'static str),
    /// A program in the folder with Debian 13.
    Debian13(&'static str),
    /// A project below `tests/compatibility/`.
    Project,
}

/// Every server, in the order of the page.
pub(crate) const SERVERS: &[Server] = &[
    Server {
        key: "lockwheel",
        title: "Lockwheel",
        purpose: "This project: a small server for locks, embeddable in tests.",
        is_double: false,
        origin: Origin::Own,
    },
    Server {
        key: "redis-7.0",
        title: "Redis 7.0",
        purpose: "The server itself, as Debian 12 packages it.",
        is_double: false,
        origin: Origin::Path("redis-server"),
    },
    Server {
        key: "redis-8.0",
        title: "Redis 8.0",
        purpose: "The server itself, as Debian 13 packages it.",
        is_double: false,
        origin: Origin::Debian13("redis-server"),
    },
    Server {
        key: "valkey-8.1",
        title: "Valkey 8.1",
        purpose: "The fork of Redis that the Linux Foundation keeps, as Debian 13 packages it.",
        is_double: false,
        origin: Origin::Debian13("valkey-server"),
    },
    Server {
        key: "fakeredis",
        title: "fakeredis",
        purpose: "A test double for Python, made to be used inside the process with redis-py in \
                  front, which hides much of what differs on the wire. Its TCP server was tried.",
        is_double: true,
        origin: Origin::Project,
    },
    Server {
        key: "miniredis",
        title: "miniredis",
        purpose: "A test double for Go's unit tests. Its clock is frozen until a test moves it; \
                  here a program of ten lines moves it along with the system clock.",
        is_double: true,
        origin: Origin::Project,
    },
    Server {
        key: "jedis-mock",
        title: "jedis-mock",
        purpose: "A test double for Java's unit tests.",
        is_double: true,
        origin: Origin::Project,
    },
    Server {
        key: "meebis",
        title: "meebis",
        purpose: "A disposable server for development in a single binary.",
        is_double: true,
        origin: Origin::Project,
    },
];

/// Why a server could not be run to the end.
pub(crate) enum ServerError {
    /// It is not available here.
    NoTools(String),
    /// It cannot be started, or has crashed.
    Failed(String),
}

/// A running server, which ends when this is dropped.
pub(crate) struct Running {
    child: Child,
    port: u16,
    tls: Option<Tls>,
    log: PathBuf,
    /// Its folder.
    _folder: Folder,
}

/// The port for TLS of a server, and the client that it accepts.
struct Tls {
    port: u16,
    client: TlsClient,
    certificates: Certificates,
}

impl Server {
    /// Starts the server and waits until it replies.
    pub(crate) fn start(&self, may_bootstrap: bool) -> Result<Running, ServerError> {
        let port = free_port();
        let folder = Folder::new();
        let root = match self.origin {
            Origin::Debian13(_) => debian_13(may_bootstrap)?,
            _ => PathBuf::from("/"),
        };
        let tls = (!self.is_double).then(|| Tls::new(&root));
        let mut command = self.command(port, tls.as_ref(), &root)?;
        let log = PathBuf::from(folder.path("log"));
        let died = |error: io::Error| ServerError::Failed(format!("it cannot be started: {error}"));
        let output = File::create(&log).map_err(died)?;
        let errors = output.try_clone().map_err(died)?;
        for (variable, _) in std::env::vars().filter(|(it, _)| it.starts_with("LOCKWHEEL_")) {
            command.env_remove(variable);
        }
        command.current_dir(folder.path("")).stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = command.spawn().map_err(died)?;
        let mut running = Running { child, port, tls, log, _folder: folder };
        running.wait_until_ready()?;
        Ok(running)
    }

    fn command(&self, port: u16, tls: Option<&Tls>, root: &Path) -> Result<Command, ServerError> {
        let words: Vec<String> = match &self.origin {
            Origin::Own => vec![daemon::program().to_string_lossy().into_owned()],
            Origin::Path(program) => vec![(*program).to_owned()],
            Origin::Debian13(program) => {
                let root = root.to_string_lossy().into_owned();
                vec!["chroot".to_owned(), root, (*program).to_owned()]
            }
            Origin::Project => {
                let mut command = Command::new(self.script());
                command.arg(port.to_string());
                return Ok(command);
            }
        };
        let is_there = match &self.origin {
            Origin::Path(program) => on_path(program),
            _ => true,
        };
        if !is_there {
            return Err(ServerError::NoTools(format!("there is no {} on the path", words[0])));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(tls.iter().flat_map(|tls| tls.options()));
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]);
        Ok(command)
    }

    /// The program of a project that starts the server.
    fn script(&self) -> PathBuf {
        crate::folder().join(self.key).join("run")
    }

    /// The version that a project pins.
    pub(crate) fn pinned_version(&self) -> Option<String> {
        let Origin::Project = self.origin else { return None };
        let output = Command::new(self.script()).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Tls {
    /// A free port, and certificates for a server with this root directory.
    fn new(root: &Path) -> Tls {
        let certificates = Certificates::within(root);
        certificates.issue("client", Validity::Now);
        let client = certificates.client_with(Some("client"), &[&TLS13, &TLS12]);
        Tls { port: free_port(), client, certificates }
    }

    fn options(&self) -> Vec<String> {
        let mut options = self.certificates.options(self.port);
        options.extend(["--tls-auth-clients", "optional"].map(String::from));
        options
    }
}

impl Running {
    /// The address of the server.
    pub(crate) fn address(&self) -> Address {
        Address::parse(&format!("redis://127.0.0.1:{}", self.port)).expect("a valid URL")
    }

    /// The address of its port for TLS, if it has one.
    pub(crate) fn tls_address(&self) -> Option<Address> {
        let tls = self.tls.as_ref()?;
        let url = format!("rediss://127.0.0.1:{}", tls.port);
        let mut address = Address::parse(&url).expect("a valid URL");
        address.set_tls(&tls.client);
        Some(address)
    }

    /// The first error line of its output.
    pub(crate) fn error_line(&self) -> Option<String> {
        let log = self.log();
        // In most languages a trace follows the error; Rust prints the place before the error.
        let mut lines = log.lines().skip_while(|line| {
            !["panic", "failed", "Exception", "Error"].iter().any(|word| line.contains(word))
        });
        let first = lines.next()?;
        let line = if first.contains("panicked at") { lines.next() } else { None };
        Some(line.unwrap_or(first).trim().to_owned())
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Why it did not start: an error line, or else the last line of its output.
    fn last_words(&self) -> String {
        let last = || self.log().lines().last().unwrap_or_default().trim().to_owned();
        self.error_line().unwrap_or_else(last)
    }

    fn wait_until_ready(&mut self) -> Result<(), ServerError> {
        let address = self.address();
        let begun_us = time::now_us();
        loop {
            let wire = Wire::connect(&address, 2, REPLY_TIMEOUT);
            if wire.and_then(|mut wire| wire.call(&["PING"])).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(match status.code() {
                    Some(NO_TOOLS) => {
                        ServerError::NoTools("its tools are not installed".to_owned())
                    }
                    _ => ServerError::Failed(format!("{status}: {}", self.last_words())),
                });
            }
            if time::now_us() - begun_us > START_TIMEOUT_US {
                return Err(ServerError::Failed("it never listens".to_owned()));
            }
            time::sleep(GLANCE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder with Debian 13 and its servers; it is created if that is allowed.
fn debian_13(may_bootstrap: bool) -> Result<PathBuf, ServerError> {
    let named = redis_server::debian_13();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    let folder = named.or_else(|| Some(cache?.join("lockwheel/debian-13")));
    let folder = folder.ok_or_else(|| ServerError::NoTools("there is no HOME".to_owned()))?;
    if folder.join("usr/bin/valkey-server").exists() {
        return Ok(folder);
    }
    if !may_bootstrap {
        let advice = "name a folder with Debian 13, or say --debootstrap to make one";
        let place = folder.display();
        return Err(ServerError::NoTools(format!("{place} is not there: {advice}")));
    }
    println!("debootstrap makes {}", folder.display());
    fs::create_dir_all(&folder).map_err(|error| ServerError::Failed(error.to_string()))?;
    let made = Command::new("debootstrap")
        .args(["--variant=minbase", "--include=redis-server,valkey-server", "trixie"])
        .arg(&folder)
        .status();
    match made {
        Ok(status) if status.success() => Ok(folder),
        Ok(status) => Err(ServerError::Failed(format!("debootstrap: {status}"))),
        Err(error) => Err(ServerError::NoTools(format!("debootstrap: {error}"))),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
