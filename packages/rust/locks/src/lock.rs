//! The asynchronous lock.

// A lock counts as lost by the clock of its process.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fmt;
use std::panic;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};

use crate::options::{LIMIT, Times, ms};
use crate::{LockError, Options};

/// The longest pause before a failed renewal is tried again.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A lock of one owner, with the settings of a [`redis::Client`]. It has a connection of its own
/// while it waits and while it is held. Clones are the same lock.
#[derive(Clone)]
pub struct Lock(Arc<Core>);

struct Core {
    /// Clients of one server, or of all nodes of a cluster.
    clients: Vec<Client>,
    key: String,
    owner: String,
    options: Options,
    times: Times,
    /// The state of the last grant. Attempts to acquire the lock are made one at a time.
    last: Mutex<Option<watch::Receiver<State>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Released,
    Lost,
}

/// A lock that is held, and renews itself. Is made by [`Lock::acquire`].
///
/// To drop it releases the lock in the background, on the runtime that has acquired it.
/// [`Guard::release`] waits for that, and returns an error if the lock was lost.
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard(pub(crate) Arc<Grant>);

pub(crate) struct Grant {
    lock: Arc<Core>,
    token: u64,
    state: watch::Sender<State>,
    /// Moment until which the server holds the lock, as far as it is known, by the clock of this
    /// process.
    trusted_until: watch::Sender<Instant>,
    /// Connection of the grant, for one call at a time.
    own: Mutex<Option<MultiplexedConnection>>,
    runtime: Handle,
}

impl Lock {
    /// A lock that is not held yet.
    #[must_use]
    pub fn new(client: &Client, key: impl Into<String>, options: Options) -> Self {
        Self::of_cluster([client.clone()], key, options)
    }

    /// A lock of a cluster of Lockwheel, by clients of its nodes. It asks all of them for their
    /// `ROLE`, and uses the one that leads.
    #[must_use]
    pub fn of_cluster(
        nodes: impl IntoIterator<Item = Client>,
        key: impl Into<String>,
        options: Options,
    ) -> Self {
        let owner = options.owner.clone().unwrap_or_else(own_name);
        let (clients, key, times) = (Vec::from_iter(nodes), key.into(), options.times());
        Lock(Arc::new(Core { clients, key, owner, options, times, last: Mutex::default() }))
    }

    /// The owner in the commands.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// Acquires the lock; may wait for it, as its options say. The server forgets a client whose
    /// future is dropped while it waits.
    ///
    /// After an error of the connection the server may have granted the lock: then acquiring it
    /// again succeeds at once, and otherwise it is free when its lease ends.
    ///
    /// # Errors
    ///
    /// [`LockError::NotAcquired`] if another owner holds the lock.
    pub async fn acquire(&self) -> Result<Guard, LockError> {
        self.acquire_within(self.0.options.wait).await
    }

    /// As [`acquire`](Self::acquire), with another time to wait.
    ///
    /// # Errors
    ///
    /// As those of [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Guard, LockError> {
        let lock = &self.0;
        let mut last = lock.last.lock().await;
        if last.as_ref().is_some_and(|state| *state.borrow() == State::Held) {
            return Err(LockError::HeldAlready);
        }
        let begun = Instant::now();
        let command = lock.options.acquisition(&lock.key, &lock.owner, wait);
        let mut connection = None;
        let limit = LIMIT.saturating_add(wait);
        let reply = lock.call(&mut connection, &command, limit, 1).await?;
        let token = lock.token(reply)?;
        let (state, watched) = watch::channel(State::Held);
        let trusted_until = watch::Sender::new(begun + lock.times.trust);
        let (own, runtime) = (Mutex::new(connection), Handle::current());
        let lock = Arc::clone(lock);
        let grant = Arc::new(Grant { lock, token, state, trusted_until, own, runtime });
        let lock = &self.0;
        let guard = Guard(Arc::clone(&grant));
        *last = Some(watched);
        if begun.elapsed() > lock.times.trust / 3 {
            // It is not known when in this time the lease began.
            grant.renew().await?;
        }
        if !lock.times.trust.is_zero() {
            let grant = Arc::clone(&grant);
            tokio::spawn(async move { grant.expire().await });
        }
        if !lock.times.period.is_zero() {
            tokio::spawn(async move { grant.keep().await });
        }
        Ok(guard)
    }
}

impl Guard {
    /// The fencing token: later grants have greater ones.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token
    }

    /// Whether the lock is held, as far as is known. It is not any more when the last lease that
    /// the server has confirmed, or the grace of a bound lock unless it is 0, is over but for a
    /// twentieth by the clock of this process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.is_held()
    }

    /// Ends when the lock is found to be lost.
    pub async fn lost(&self) {
        let mut state = self.0.state.subscribe();
        // It cannot fail: the sender is in `self`.
        let _ = state.wait_for(|state| *state == State::Lost).await;
    }

    /// Renews the lease now.
    ///
    /// # Errors
    ///
    /// After [`LockError::Lost`] the lock is not held any more; after another error it still is.
    pub async fn renew(&self) -> Result<(), LockError> {
        self.0.renew().await
    }

    /// Releases the lock.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if it was not held any more.
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_held() {
            let grant = Arc::clone(&self.0);
            self.0.runtime.spawn(async move { grant.release().await });
        }
    }
}

impl Grant {
    pub(crate) fn is_held(&self) -> bool {
        let is_trusted = self.lock.times.trust.is_zero() || !self.is_over();
        *self.state.borrow() == State::Held && is_trusted
    }

    fn is_over(&self) -> bool {
        Instant::now() >= *self.trusted_until.borrow()
    }

    pub(crate) async fn renew(&self) -> Result<(), LockError> {
        let mut own = self.own.lock().await;
        self.check()?;
        let (lock, begun) = (&self.lock, Instant::now());
        let mut command = lock.command("LOCK.RENEW");
        command.arg("TTL").arg(ms(lock.options.ttl)).arg("TOKEN").arg(self.token);
        let reply = lock.call(&mut own, &command, lock.times.limit, 2).await;
        if let Err(error) = self.check() {
            *own = None;
            return Err(error);
        }
        match reply {
            Ok(Value::Int(1)) => {
                self.trusted_until.send_replace(begun + lock.times.trust);
                Ok(())
            }
            Err(error) if !self.is_over() => Err(error),
            _ => {
                *own = None;
                Err(self.lose())
            }
        }
    }

    pub(crate) async fn release(&self) -> Result<(), LockError> {
        let mut own = self.own.lock().await;
        self.check()?;
        self.state.send_replace(State::Released);
        let mut command = self.lock.command("LOCK.RELEASE");
        command.arg("TOKEN").arg(self.token);
        let mut tries = 1;
        if self.lock.options.owner.is_none() {
            // Its owner holds the lock once, also if the reply to a grant was lost. With another
            // owner, a release that is sent again may be that of another object.
            command.arg("ALL");
            tries = 2;
        }
        let reply = self.lock.call(&mut own, &command, LIMIT, tries).await;
        *own = None;
        if reply? == Value::Nil { Err(self.lose()) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), LockError> {
        match *self.state.borrow() {
            State::Held => Ok(()),
            State::Released => Err(LockError::Released),
            State::Lost => Err(self.error()),
        }
    }

    fn error(&self) -> LockError {
        LockError::Lost { key: self.lock.key.clone(), token: self.token }
    }

    fn lose(&self) -> LockError {
        let is_known = self.state.send_replace(State::Lost) == State::Lost;
        if let Some(on_lost) = self.lock.options.on_lost.clone().filter(|_| !is_known) {
            self.runtime.spawn_blocking(move || on_lost());
        }
        self.error()
    }

    /// Ends the grant when it is over by the clock, whatever a renewal waits for.
    async fn expire(&self) {
        let mut state = self.state.subscribe();
        loop {
            let until = *self.trusted_until.borrow();
            let ended = state.wait_for(|state| *state != State::Held);
            if timeout_at(until.into(), ended).await.is_ok() {
                return;
            }
            if self.is_over() {
                self.lose();
                // The server releases a bound lock when its connection ends.
                *self.own.lock().await = None;
                return;
            }
        }
    }

    /// Renews the lease until it is released or lost.
    async fn keep(&self) {
        let mut state = self.state.subscribe();
        let mut pause = self.lock.times.period;
        while timeout(pause, state.wait_for(|state| *state != State::Held)).await.is_err() {
            pause = self.lock.times.period;
            if self.renew().await.is_err() {
                pause = pause.min(PAUSE_MAX);
            }
        }
    }
}

impl Core {
    fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(&self.key).arg(&self.owner);
        command
    }

    /// Reads the reply to a `LOCK.ACQUIRE`, which is a map, or an array of names and values.
    fn token(&self, reply: Value) -> Result<u64, LockError> {
        let fields: BTreeMap<String, String> =
            redis::from_redis_value(reply).map_err(RedisError::from)?;
        let number = |name| fields.get(name).and_then(|value| value.parse().ok());
        let status = fields.get("status").cloned().unwrap_or_default();
        if let Some(token) = number("token").filter(|_| status == "acquired") {
            return Ok(token);
        }
        Err(LockError::NotAcquired {
            key: self.key.clone(),
            status,
            holders: number("holders").unwrap_or_default(),
            ttl: Duration::from_millis(number("ttl").unwrap_or_default()),
            queue: number("queue").unwrap_or_default(),
        })
    }

    /// The reply to a command, which is sent again if the connection has ended.
    async fn call(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        command: &Cmd,
        limit: Duration,
        tries: usize,
    ) -> Result<Value, LockError> {
        let exchange = timeout(limit, async {
            let mut left = tries;
            loop {
                left -= 1;
                match self.exchange(connection, command).await {
                    // A former leader may keep the connection open.
                    Err(error) if matches!(error.code(), None | Some("READONLY")) => {
                        *connection = None;
                        if left == 0 {
                            return Err(error);
                        }
                    }
                    answered => return answered,
                }
            }
        });
        let reply = exchange.await;
        if reply.is_err() {
            *connection = None;
        }
        Ok(reply.map_err(|_| LockError::NoReply(limit))??)
    }

    async fn exchange(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        if connection.is_none() {
            *connection = Some(self.connect().await?);
        }
        match connection {
            Some(connection) => connection.send_packed_command(command).await?.extract_error(),
            None => unreachable!("it was connected above"),
        }
    }

    /// A connection to the only server, or to the first that says that it leads.
    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.times.limit.max(Duration::from_secs(1))))
            .set_response_timeout(None);
        if let [client] = &self.clients[..] {
            return client.get_multiplexed_async_connection_with_config(&config).await;
        }
        let mut attempts = JoinSet::new();
        for client in self.clients.clone() {
            let config = config.clone();
            attempts.spawn(async move { connect_to_leader(&client, &config).await });
        }
        let mut error = RedisError::from((ErrorKind::InvalidClientConfig, "there is no client"));
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(failure)) => error = failure,
                Err(failure) => panic::resume_unwind(failure.into_panic()),
            }
        }
        Err(error)
    }
}

async fn connect_to_leader(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(connection),
        _ => Err(RedisError::from((ErrorKind::Io, "no node of the cluster leads"))),
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { key, owner, options, .. } = &*self.0;
        f.debug_struct("Lock")
            .field("key", key)
            .field("owner", owner)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, token, is_held) = (&self.0.lock.key, self.token(), self.is_held());
        f.debug_struct("Guard")
            .field("key", key)
            .field("token", &token)
            .field("is_held", &is_held)
            .finish_non_exhaustive()
    }
}

/// An owner that no other object has.
fn own_name() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let random = getrandom::u64().expect("the system has random numbers");
    format!("{}:{}:{random:016x}", host.to_string_lossy(), process::id())
}
