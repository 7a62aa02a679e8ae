//! [`Server`] and [`Builder`]: start, use and stop a server.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
#[cfg(feature = "replication")]
use std::sync::OnceLock;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lockwheel_resp::Reply;
use parking_lot::Mutex;

use crate::clock;
use crate::durability::{Restored, warn_of_redis_files};
use crate::error::{Error, ErrorKind};
use crate::in_process::Client;
use crate::instruments::{Clock, Faults, Journal, since_epoch};
use crate::net::listen_settings::{ListenSettings, are_remote};
use crate::server::acl_file::AclFileOnDisk;

use crate::host::Host;
use crate::host::runtime_files::RuntimeFiles;
use crate::host::slow_script::SlowScriptMonitor;
use crate::net::listener::Acceptor;
use crate::net::turn;
use crate::net::workers::Workers;
use crate::process_usage;
#[cfg(feature = "replication")]
use crate::replication::{NodeSettings, Replication};
use crate::seeds::seeds;
#[cfg(feature = "tls")]
use crate::tls::TlsConfig;
use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
#[cfg(feature = "tls")]
use lockwheel_engine::settings::TlsAuthClients;
use lockwheel_engine::settings::{Directive, Field, Permission, Settings, directive};
use lockwheel_engine::timing::time::{Millis, Rate};
use tracing::warn;

/// Configures a server and starts it. Created by [`Server::builder`].
#[derive(Debug)]
pub struct Builder {
    settings: Result<Settings, Error>,
    seed: Option<u64>,
    /// Whether to listen for TLS at a free port, unless a directive names one.
    listens_for_tls: bool,
    /// The listening sockets of the server whose place this one takes.
    kept: Vec<TcpListener>,
}

impl Builder {
    /// A builder with settings that have been read elsewhere, such as from a command line.
    pub fn from_settings(settings: Settings) -> Builder {
        Builder { settings: Ok(settings), seed: None, listens_for_tls: false, kept: Vec::new() }
    }

    /// Sets the TCP port, on the loopback interface unless `bind` is set. The default, 0, means any
    /// free port.
    pub fn port(self, port: u16) -> Builder {
        self.with(|settings| {
            settings.port = port;
            Ok(())
        })
    }

    /// Sets a directive as `redis.conf` or `CONFIG SET` would: `.config("requirepass", "secret")`.
    /// [`Builder::start`] returns the error if the value is invalid.
    pub fn config(self, directive: &str, value: &str) -> Builder {
        self.with(|settings| {
            settings
                .apply(directive, value)
                .map_err(|error| Error::new(ErrorKind::Config, error.to_string()))
        })
    }

    /// Accepts connections with TLS, with the certificate (and its chain) and the private key in
    /// these PEM files: at any free port unless `tls-port` is set, and instead of connections
    /// without TLS unless a [port](Builder::port) is. Clients need no certificate unless
    /// `tls-auth-clients` is set afterwards, with `tls-ca-cert-file`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, cert_file: impl AsRef<Path>, key_file: impl AsRef<Path>) -> Builder {
        self.listens_for_tls = true;
        let path = |file: &Path| Some(file.to_string_lossy().into_owned());
        self.put(directive::TLS_CERT_FILE, &path(cert_file.as_ref()))
            .put(directive::TLS_KEY_FILE, &path(key_file.as_ref()))
            .put(directive::TLS_AUTH_CLIENTS, &TlsAuthClients::No)
    }

    /// Stops the server's [`Clock`] at the start, until it is moved or started.
    pub fn frozen_clock(self) -> Builder {
        self.put(directive::CLOCK_FROZEN, &true)
    }

    /// Sets the time that the server's [`Clock`] shows at the start, to the millisecond. It is the
    /// current time by default. After a restart from a log, the clock does not go back.
    pub fn clock_start(self, begin: SystemTime) -> Builder {
        self.put(directive::CLOCK_START, &Some(since_epoch(begin)))
    }

    /// For tests: keys that match one of these patterns are locks, however they are made. Patterns
    /// are those of `KEYS` and contain no blanks; [`Journal::declare_locks`] accepts blanks.
    pub fn lock_keys(self, patterns: &[&str]) -> Builder {
        self.put(directive::LOCK_KEYS, &Some(patterns.join(" ")))
    }

    /// For tests: keys that match one of these patterns are no locks: see [`Builder::lock_keys`].
    pub fn ignored_lock_keys(self, patterns: &[&str]) -> Builder {
        self.put(directive::IGNORED_LOCK_KEYS, &Some(patterns.join(" ")))
    }

    /// Makes random choices repeatable: the same commands at the same times get the same replies.
    /// Without a seed the server draws one, which also protects its hash tables from collisions.
    pub fn seed(mut self, seed: u64) -> Builder {
        self.seed = Some(seed);
        self
    }

    /// Allows clients the commands for tests (`LOCKWHEEL`, `DEBUG`), keeps a journal, and keeps the
    /// last writes so that a failover can lose them.
    pub fn for_tests(self) -> Builder {
        self.put(directive::ENABLE_TEST_COMMANDS, &Permission::Yes)
            .put(directive::ENABLE_DEBUG_COMMAND, &Permission::Yes)
    }

    /// Reads what a start reads before it listens: the settings, the certificates, the users.
    ///
    /// # Errors
    /// As [`Builder::start`] returns them.
    #[doc(hidden)]
    pub fn check(self) -> Result<(), Error> {
        let settings = self.settings?;
        let _listen = listen_settings(&settings, self.listens_for_tls)?;
        #[cfg(feature = "tls")]
        tls_config(&settings, &_listen)?;
        #[cfg(feature = "replication")]
        NodeSettings::of(&settings)?;
        let now = clock(&settings, None).now();
        let mut engine = Engine::new(settings, Process::default(), now, seeds(self.seed)?);
        load_users(&mut engine)
    }

    /// Starts the server. Clients can connect when this returns. While the restart guard is on,
    /// their connections wait in the queue of the port, for up to a second.
    ///
    /// # Errors
    /// If a setting is invalid, an address cannot be listened on, or a thread cannot be created.
    pub fn start(self) -> Result<Server, Error> {
        let mut settings = self.settings?;
        let listen = listen_settings(&settings, self.listens_for_tls)?;
        #[cfg(feature = "tls")]
        let tls = tls_config(&settings, &listen)?;
        settings.choose_restart_guard();
        let (clock, restored) = find_log(&mut settings)?;
        let workers = Workers::new(listen.io_threads.max(1))?;
        let runtime_files = RuntimeFiles::default();
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only TLS changes it"))]
        let mut acceptor = Acceptor::open(
            &listen,
            &self.kept,
            workers.runtimes(),
            workers.client_tasks.clone(),
            &runtime_files,
        )?;
        #[cfg(feature = "tls")]
        acceptor.use_tls(tls.clone());
        let acceptor = Arc::new(acceptor);
        let (address, tls_address) = (acceptor.address(), acceptor.tls_address());
        let listening = Arc::downgrade(&acceptor);
        if let Some(path) = &listen.pidfile {
            write_pidfile(&runtime_files, path)?;
        }
        note_ports(&mut settings, address, tls_address);
        let process = process_usage::process(&workers.main_thread);
        let process = Process { sleep: turn::sleep_holding_engine, ..process };
        let mut engine = Engine::new(settings.clone(), process, clock.now(), seeds(self.seed)?);
        engine.set_clock_rate(clock.rate());
        load_users(&mut engine)?;
        warn_if_protected(&engine, &listen);
        await_state(&mut engine, restored.as_ref(), &clock);
        #[cfg(feature = "tls")]
        engine.set_settings_user(Box::new(tls.clone()));
        let host = Host::new(engine, clock, runtime_files)?;
        let monitor = SlowScriptMonitor::new(&host, &acceptor);
        host.with(|engine| engine.set_script_monitor(Box::new(monitor)))?;
        let threads = workers.start(&host, acceptor)?;
        let threads = Mutex::new(threads);
        // If the log cannot be loaded, the server is dropped, which stops it.
        let (unixsocket, seed) = (listen.unixsocket, self.seed);
        let server = Server {
            host,
            address,
            tls_address,
            listening,
            unixsocket,
            threads,
            settings,
            seed,
            #[cfg(feature = "tls")]
            tls,
            #[cfg(feature = "replication")]
            replication: OnceLock::new(),
        };
        if let Some(restored) = restored {
            restored.restore(&server.host)?;
        }
        #[cfg(feature = "replication")]
        if let Some(node) = NodeSettings::of(&server.settings)? {
            // The cell is set only here.
            let _ = server.replication.set(Replication::start(&node, &server.host)?);
        }
        Ok(server)
    }

    fn put<T: Field>(self, directive: Directive<T>, value: &T) -> Builder {
        self.with(|settings| {
            settings.put(directive, value);
            Ok(())
        })
    }

    fn with(mut self, act: impl FnOnce(&mut Settings) -> Result<(), Error>) -> Builder {
        if let Ok(settings) = &mut self.settings
            && let Err(error) = act(settings)
        {
            self.settings = Err(error);
        }
        self
    }
}

/// A server within this process. Dropping it stops the server, its threads and its connections.
///
/// ```
/// use lockwheel::{Reply, Server};
///
/// let server = Server::builder().config("maxclients", "100").start()?;
/// assert_eq!(server.call(&["PING"])?, Reply::Simple("PONG".into()));
/// println!("Redis clients connect to {}", server.url());
/// # Ok::<(), lockwheel::Error>(())
/// ```
pub struct Server {
    pub(crate) host: Arc<Host>,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
    /// The sockets: the threads own them, and close them when they end.
    listening: Weak<Acceptor>,
    unixsocket: Option<String>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// For a restart: the settings at the start, with the port that was free, and the seed.
    settings: Settings,
    seed: Option<u64>,
    #[cfg(feature = "tls")]
    tls: TlsConfig,
    #[cfg(feature = "replication")]
    replication: OnceLock<Replication>,
}

impl Server {
    /// Starts a server with default settings on a free port of the loopback interface.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn start() -> Result<Server, Error> {
        Server::builder().start()
    }

    /// A builder with default settings and a free port of the loopback interface.
    pub fn builder() -> Builder {
        Builder::from_settings(Settings::default()).port(0).config("bind", "127.0.0.1")
    }

    /// The TCP address of the server: that for connections without TLS, if it has both.
    ///
    /// # Panics
    /// If the server was configured without one (`port 0` with a `unixsocket`).
    pub fn addr(&self) -> SocketAddr {
        self.address.or(self.tls_address).expect("a server that listens at an address")
    }

    /// The address for connections with TLS, if there is one.
    #[cfg(feature = "tls")]
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// The URL for Redis clients: `redis://127.0.0.1:54321/`, `rediss://127.0.0.1:54321/` if it
    /// accepts only connections with TLS, or `unix:///path`.
    pub fn url(&self) -> String {
        match (self.address, self.tls_address, &self.unixsocket) {
            (Some(address), ..) => format!("redis://{address}/"),
            (None, Some(address), _) => format!("rediss://{address}/"),
            (None, None, Some(path)) => format!("unix://{path}"),
            (None, None, None) => String::new(),
        }
    }

    /// Reads the certificates and keys of TLS again, for new connections. `CONFIG SET` of one of
    /// their directives does the same. Returns whether the server accepts connections with TLS.
    ///
    /// # Errors
    /// If one of them cannot be used: those in use stay. Also if the server has ended.
    #[cfg(feature = "tls")]
    pub fn reload_tls(&self) -> Result<bool, Error> {
        // The files are read while clients are served.
        let settings = self.host.with(|engine| engine.settings().clone())?;
        self.tls.reload(&settings).map_err(|error| Error::new(ErrorKind::Config, error))
    }

    /// What connections with TLS are accepted with now, for the program's port for monitoring.
    #[cfg(feature = "tls")]
    #[doc(hidden)]
    pub fn tls_config(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.current()
    }

    /// Runs one command within this process, in a new session: see [`Client::call`].
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<Reply, Error> {
        self.client()?.call(command)
    }

    /// As [`Server::call`], but an error reply is a [`Reply::Error`].
    ///
    /// # Errors
    /// As [`Client::call_raw`].
    pub fn call_raw<A: AsRef<[u8]>>(&self, command: &[A]) -> Result<Reply, Error> {
        self.client()?.call_raw(command)
    }

    /// The 40 hexadecimal digits that identify the server as a node of a cluster or as a sentinel.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn node_id(&self) -> Result<String, Error> {
        Ok(self.host.with(|engine| engine.node_id().to_owned())?)
    }

    /// A client within this process.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn client(&self) -> Result<Client, Error> {
        Client::connect(&self.host)
    }

    /// A client for the program's port for monitoring: neither it nor its commands are counted.
    #[doc(hidden)]
    pub fn monitoring_client(&self) -> Result<Client, Error> {
        Client::connect_as(&self.host, true)
    }

    /// The server's clock, to stop and move it.
    pub fn clock(&self) -> Clock<'_> {
        Clock { host: &self.host }
    }

    /// The faults of the server, to add and remove them.
    pub fn faults(&self) -> Faults<'_> {
        Faults { host: &self.host }
    }

    /// The journal of the server, if it was started [for tests](Builder::for_tests).
    pub fn journal(&self) -> Journal<'_> {
        Journal::new(&self.host)
    }

    /// Moves the clock forward by `span`, to the millisecond: see [`Clock::advance`].
    ///
    /// # Errors
    /// If the server has ended.
    pub fn advance(&self, span: Duration) -> Result<(), Error> {
        self.clock().advance(span)
    }

    /// Stops the server, if it runs, and starts it again at the same address, as at the first
    /// start: all connections and clients end, and all keys are lost unless `appendonly yes` keeps
    /// them.
    ///
    /// # Errors
    /// As [`Builder::start`].
    pub fn restart(&mut self) -> Result<(), Error> {
        let kept = self.listening.upgrade().map(|acceptor| acceptor.tcp_listeners());
        self.stop();
        let (settings, kept) = (Ok(self.settings.clone()), kept.unwrap_or_default());
        let builder = Builder { settings, seed: self.seed, listens_for_tls: false, kept };
        *self = builder.start()?;
        Ok(())
    }

    /// Restores the state after the start, for a server that several tests share: removes keys,
    /// scripts, functions, fault rules, gates, the journal and the names of clients, restores all
    /// settings, and lets the clock run or stops it as at the start. The connections and the time
    /// stay.
    ///
    /// # Errors
    /// While a script runs, or if the server has ended.
    pub fn reset(&self) -> Result<(), Error> {
        self.call(&["LOCKWHEEL", "RESET"]).map(|_| ())
    }

    /// How long the restart guard still refuses commands; `None` if it does not. Does not wait for
    /// a script that runs.
    pub fn restart_guard_left(&self) -> Option<Duration> {
        let left = self.host.restart_guard_left()?;
        u64::try_from(left.0).ok().map(Duration::from_millis)
    }

    /// Whether the server has stopped, or is stopping.
    pub fn is_stopped(&self) -> bool {
        self.host.is_stopped()
    }

    /// Waits until the server is stopped, by `SHUTDOWN` or by [`Server::stop`].
    pub async fn stopped(&self) {
        self.host.stopped().await;
    }

    /// Whether the engine has failed because of a bug, or the log could not be written. The server
    /// is stopped then.
    pub fn has_failed(&self) -> bool {
        self.host.has_failed() || self.host.gate.has_failed()
    }

    /// Whether this server is a node that has failed since its log lacks what it has acknowledged:
    /// it must be removed from its cluster, and join again with an empty folder.
    #[cfg(feature = "replication")]
    pub fn has_lost_log(&self) -> bool {
        self.replication.get().is_some_and(Replication::log_is_lost)
    }

    /// Whether this server is a node that has stopped since it was removed from its cluster: it may
    /// join again with an empty folder.
    #[cfg(feature = "replication")]
    pub fn was_removed(&self) -> bool {
        self.replication.get().is_some_and(Replication::was_removed)
    }

    /// Whether this server is a node that leads.
    #[cfg(feature = "replication")]
    #[doc(hidden)]
    pub fn leads(&self) -> bool {
        self.replication.get().is_some_and(Replication::leads)
    }

    /// Stops the server: closes its port and all connections, and waits for its threads. Does
    /// nothing if it has stopped already.
    pub fn stop(&self) {
        self.host.stop();
        #[cfg(feature = "replication")]
        if let Some(replication) = self.replication.get() {
            replication.stop_after(|| self.join_threads(), &self.host.gate);
        }
        self.join_threads();
        self.host.registry.clear();
        self.host.end_log();
    }

    /// Waits for the threads, which send the last replies.
    fn join_threads(&self) {
        for thread in self.threads.lock().drain(..) {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// The clock of a new server. `lease` is the lease clock of the log that is restored: a clock does
/// not begin before.
fn clock(settings: &Settings, lease: Option<Millis>) -> clock::Clock {
    let begin = settings.get(directive::CLOCK_START);
    match (settings.get(directive::CLOCK_FROZEN), begin, lease) {
        (false, None, None) => clock::Clock::system(),
        (false, None, Some(lease)) => clock::Clock::system_from(lease),
        (false, ..) => clock::Clock::controlled(begin.max(lease), Rate::REAL),
        (true, ..) => clock::Clock::controlled(begin.max(lease), Rate::STOPPED),
    }
}

/// The clock of the server, and what it finds in its log. A node reads its log later.
fn find_log(settings: &mut Settings) -> Result<(clock::Clock, Option<Restored>), Error> {
    #[cfg(feature = "replication")]
    if settings.is_node() {
        return Ok((clock::Clock::following(), None));
    }
    warn_of_redis_files(settings);
    let restored = Restored::find(settings)?;
    let clock = clock(settings, restored.as_ref().and_then(Restored::lease_clock));
    Ok((clock, restored))
}

/// Logs that protected mode refuses the clients for which the server listens.
fn warn_if_protected(engine: &Engine, listen: &ListenSettings) {
    if engine.is_protected() && are_remote(&listen.bind) {
        warn!(
            "clients on other machines are refused while there is no password: set requirepass or \
             users, or protected-mode no"
        );
    }
}

/// Begins to wait for the state: until it is there, no command is served that needs it.
fn await_state(engine: &mut Engine, restored: Option<&Restored>, clock: &clock::Clock) {
    if let Some(restored) = restored {
        engine.begin_loading(restored.bytes(), restored.last_time(), clock.now());
    }
    #[cfg(feature = "replication")]
    if engine.settings().is_node() {
        engine.follow();
    }
}

/// Where to listen: for TLS at any free port if `listens_for_tls` and no directive names one.
fn listen_settings(settings: &Settings, listens_for_tls: bool) -> Result<ListenSettings, Error> {
    let mut listen = ListenSettings::of(settings);
    if listens_for_tls {
        listen.tls_port.get_or_insert(0);
    }
    if listen.tls_port.is_some() && cfg!(not(feature = "tls")) {
        let problem = "tls-port: this program was built without TLS (the cargo feature `tls`)";
        return Err(Error::new(ErrorKind::Config, problem.to_owned()));
    }
    Ok(listen)
}

/// Loads the users of the configuration, or those of the file that it names.
fn load_users(engine: &mut Engine) -> Result<(), Error> {
    let acl_file = engine.settings().get(directive::ACLFILE).map(AclFileOnDisk::at);
    engine.load_users(acl_file).map_err(|error| Error::new(ErrorKind::Config, error))
}

/// Writes the pidfile. If its folder is not there or may not be written to, the server starts
/// without one, as `redis-server` does: Debian's `redis.conf` names a folder that systemd makes.
fn write_pidfile(files: &RuntimeFiles, path: &str) -> Result<(), Error> {
    match files.write_pidfile(Path::new(path)) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ) =>
        {
            warn!("Failed to write PID file: {error}");
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Sets the ports at which the server listens, where any free one was asked for.
fn note_ports(
    settings: &mut Settings,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
) {
    if let Some(address) = address {
        settings.port = address.port();
    }
    if let Some(address) = tls_address {
        settings.put(directive::TLS_PORT, &address.port());
    }
}

/// The certificates, if a port uses TLS: one of the server, or that for monitoring, which the
/// program serves with them.
#[cfg(feature = "tls")]
fn tls_config(settings: &Settings, listen: &ListenSettings) -> Result<TlsConfig, Error> {
    let config = TlsConfig::default();
    if listen.tls_port.is_some() || settings.get(directive::ADMIN_TLS) {
        config.load(settings).map_err(|error| {
            Error::new(ErrorKind::Config, format!("Failed to configure TLS: {error}"))
        })?;
    }
    Ok(config)
}
