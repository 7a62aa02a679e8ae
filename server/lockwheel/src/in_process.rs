//! A client without a socket: runs commands of the program that embeds the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use lockwheel_resp::Reply;
use lockwheel_resp::decode::decode;

use crate::error::{Error, ErrorKind};
use crate::host::{Failed, Host, Next};
use crate::net::outbox::{Outbox, OutboxContents};
use crate::net::registry::Receiver;
use lockwheel_defects::defect;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::{ClientId, Origin};

/// A client within this process. It has a session of its own, with a selected database, a
/// transaction, watched keys and subscriptions. It uses RESP3 and needs no password.
///
/// ```
/// use lockwheel::{Reply, Server};
///
/// let server = Server::start()?;
/// let mut holder = server.client()?;
/// holder.call(&["WATCH", "lock"])?;
/// server.call(&["SET", "lock", "another client"])?;
/// holder.call(&["MULTI"])?;
/// holder.call(&["SET", "lock", "mine"])?;
/// assert_eq!(holder.call(&["EXEC"])?, Reply::Null);
/// # Ok::<(), lockwheel::Error>(())
/// ```
pub struct Client {
    host: Arc<Host>,
    id: ClientId,
    outbox: Arc<Outbox>,
    pushes: VecDeque<Reply>,
    disconnected: bool,
}

/// The output of a command: its reply, and messages.
#[derive(Default)]
struct CommandOutput {
    reply: Option<Reply>,
    messages: BytesMut,
    /// The position of the log that both depend on.
    position: Position,
    /// How many leaderships of this node had ended when the command ran.
    leaderships_ended: u64,
}

impl Client {
    pub(crate) fn connect(host: &Arc<Host>) -> Result<Client, Error> {
        Client::connect_as(host, false)
    }

    /// As [`Client::connect`]. A client that only monitors the server is not counted.
    pub(crate) fn connect_as(host: &Arc<Host>, is_monitoring: bool) -> Result<Client, Error> {
        ensure_running(host)?;
        let (id, outbox) = host
            .with(|engine| {
                let origin = Origin {
                    address: "in-process:0".to_owned(),
                    local_address: "in-process:0".to_owned(),
                    descriptor: -1,
                    unix: false,
                    local: true,
                    in_process: true,
                    is_monitoring,
                };
                let id = engine.connect(origin, host.now());
                let outbox = Arc::new(Outbox::new(Arc::clone(&engine.session(id)?.buffers)));
                host.registry.add(id, Receiver::InProcess(Arc::clone(&outbox)));
                Some((id, outbox))
            })?
            .ok_or_else(disconnected)?;
        let host = Arc::clone(host);
        Ok(Client { host, id, outbox, pushes: VecDeque::new(), disconnected: false })
    }

    /// Runs one command and returns its reply. Returns at once unless the command waits: a blocking
    /// command, or any command during `CLIENT PAUSE` and in the last second of the restart guard.
    ///
    /// # Errors
    /// If the reply is an error, which is the text of a [`ErrorKind::Reply`], or as
    /// [`Client::call_raw`]. Errors within a reply, such as those of a transaction, are part of it.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        checked(self.call_raw(command)?)
    }

    /// As [`Client::call`], but an error reply is a [`Reply::Error`].
    ///
    /// # Errors
    /// If the command is empty, the client has been disconnected, the server has ended, or its node
    /// has lost its leadership meanwhile: then it is not known whether the command took effect.
    pub fn call_raw<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        let argv = arguments(command)?;
        let mut out = CommandOutput::default();
        loop {
            let next = self.run(&argv, &mut out)?;
            if matches!(next, Next::Request | Next::End) {
                while !self.is_released(&out)? {
                    self.wait();
                }
                return self.reply(out);
            }
            while !self.wait_is_over(next, &mut out)? {
                self.wait();
            }
            if next == Next::LateReply {
                return self.reply(out);
            }
        }
    }

    /// As [`Client::call`], for asynchronous code on any runtime: while the command waits, the
    /// thread is free. The command itself, such as a script, still runs on the caller's thread.
    ///
    /// If the future is dropped while its command waits, the client is disconnected: a late reply
    /// could not be distinguished from a message.
    ///
    /// ```
    /// use lockwheel::{Reply, Server};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lockwheel::Error> {
    /// let server = Server::start()?;
    /// let mut holder = server.client()?;
    /// let taken = holder.call_async(&["SET", "lock", "token", "NX", "PX", "30000"]).await?;
    /// assert_eq!(taken, Reply::OK);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::call`].
    pub async fn call_async<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        checked(self.call_raw_async(command).await?)
    }

    /// As [`Client::call_async`], but an error reply is a [`Reply::Error`].
    ///
    /// # Errors
    /// As [`Client::call_raw`].
    pub async fn call_raw_async<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        let argv = arguments(command)?;
        let mut out = CommandOutput::default();
        loop {
            let next = self.run(&argv, &mut out)?;
            let mut guard = DisconnectOnDrop { host: Arc::clone(&self.host), id: Some(self.id) };
            if matches!(next, Next::Request | Next::End) {
                // The client stays if its call ends with an error.
                while !self.is_released(&out).inspect_err(|_| guard.id = None)? {
                    self.outbox.woken().await;
                }
                guard.id = None;
                return self.reply(out);
            }
            while !self.wait_is_over(next, &mut out)? {
                self.outbox.woken().await;
            }
            guard.id = None;
            if next == Next::LateReply {
                return self.reply(out);
            }
        }
    }

    /// Waits for the next message of a subscription and returns it.
    ///
    /// # Errors
    /// If the client has been disconnected or the server has ended.
    pub fn receive(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(push) = self.try_receive()? {
                return Ok(push);
            }
            ensure_running(&self.host)?;
            self.wait();
        }
    }

    /// As [`Client::receive`], for asynchronous code on any runtime. It is cancel safe: no message
    /// is lost if the future is dropped, for example in a `select!`.
    ///
    /// ```
    /// use lockwheel::Server;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lockwheel::Error> {
    /// let server = Server::start()?;
    /// let mut waiter = server.client()?;
    /// waiter.call(&["SUBSCRIBE", "released"])?;
    /// server.call(&["PUBLISH", "released", "lock"])?;
    /// println!("{:?}", waiter.receive_async().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::receive`].
    pub async fn receive_async(&mut self) -> Result<Reply, Error> {
        loop {
            if let Some(push) = self.try_receive()? {
                return Ok(push);
            }
            ensure_running(&self.host)?;
            self.outbox.woken().await;
        }
    }

    /// The next message of a subscription, if one has arrived.
    ///
    /// # Errors
    /// If the client has been disconnected.
    pub fn try_receive(&mut self) -> Result<Option<Reply>, Error> {
        let contents = self.take_outbox();
        self.keep_pushes(&contents)?;
        match self.pushes.pop_front() {
            None if self.disconnected => Err(disconnected()),
            push => Ok(push),
        }
    }

    /// The client's id, as `CLIENT ID` returns it.
    pub fn id(&self) -> u64 {
        self.id.serial
    }

    /// Runs a command.
    fn run(&mut self, argv: &[&[u8]], out: &mut CommandOutput) -> Result<Next, Error> {
        ensure_running(&self.host)?;
        if self.disconnected {
            return Err(disconnected());
        }
        let ((next, reply, position), contents) = self.host.with(|engine| {
            out.leaderships_ended = self.host.leaderships_ended.load(Ordering::Acquire);
            let contents = self.outbox.take(self.host.gate.released());
            (self.host.call_command(engine, self.id, argv, &mut out.messages), contents)
        })?;
        out.reply = reply;
        out.position = position;
        self.keep_pushes(&contents)?;
        if contents.close.is_some() {
            return Err(disconnected());
        }
        self.disconnected |= next == Next::End;
        Ok(next)
    }

    /// Takes what is released of the outbox. If that is not all, the gate wakes this client.
    fn take_outbox(&self) -> OutboxContents {
        let released = self.host.gate.released();
        let contents = self.outbox.take(released);
        if contents.is_held {
            self.host.gate.hold_caller(&self.outbox, released);
        }
        contents
    }

    /// Whether output is released; if not, the gate wakes this client.
    ///
    /// # Errors
    /// If the node has lost its leadership meanwhile: the next leader gives the position of the
    /// output to another change.
    fn is_released(&self, out: &CommandOutput) -> Result<bool, Error> {
        let released = self.host.gate.released();
        // After `released` was read, so that it is not that of a later leadership.
        let ended = self.host.leaderships_ended.load(Ordering::Acquire);
        if ended != out.leaderships_ended && !defect!(CallsOutliveTheirLeadership) {
            return Err(Error::new(ErrorKind::Reply, OUTCOME_UNKNOWN));
        }
        if out.position <= released || defect!(CallsNotGated) {
            return Ok(true);
        }
        ensure_running(&self.host)?;
        self.host.gate.hold_caller(&self.outbox, released);
        Ok(false)
    }

    /// Takes the outbox, and returns whether the wait is over.
    fn wait_is_over(&mut self, next: Next, out: &mut CommandOutput) -> Result<bool, Error> {
        let contents = self.take_outbox();
        if next == Next::LateReply {
            out.messages.extend_from_slice(&contents.bytes);
        } else {
            self.keep_pushes(&contents)?;
        }
        if contents.resume {
            return Ok(true);
        }
        if contents.close.is_some() {
            self.disconnected = true;
            return Err(disconnected());
        }
        ensure_running(&self.host)?;
        Ok(false)
    }

    /// Blocks this thread until the outbox may have contents, or the server ends.
    fn wait(&self) {
        self.outbox.wait(|| self.host.is_stopping());
    }

    fn keep_pushes(&mut self, contents: &OutboxContents) -> Result<(), Error> {
        self.disconnected |= contents.close.is_some();
        self.pushes.extend(decoded(&contents.bytes)?);
        Ok(())
    }

    /// The reply in the output of a command; messages before and after it are kept for
    /// [`Client::receive`]. A subscription is confirmed by a push, which is its reply.
    fn reply(&mut self, out: CommandOutput) -> Result<Reply, Error> {
        let mut replies = match out.reply {
            Some(Reply::Several(replies)) => replies,
            reply => reply.into_iter().collect(),
        };
        replies.extend(decoded(&out.messages)?);
        let at = replies.iter().position(|reply| !matches!(reply, Reply::Push(_))).unwrap_or(0);
        if replies.is_empty() {
            return if self.disconnected { Err(disconnected()) } else { Ok(Reply::NOTHING) };
        }
        let reply = replies.remove(at);
        self.pushes.extend(replies);
        Ok(reply)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A failed engine has no clients any more.
        let _ = self.host.with(|engine| self.host.disconnect(engine, self.id));
        self.host.registry.remove(self.id);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id.serial).finish_non_exhaustive()
    }
}

/// Disconnects the client if the future of a call is dropped while its command waits.
struct DisconnectOnDrop {
    host: Arc<Host>,
    id: Option<ClientId>,
}

impl Drop for DisconnectOnDrop {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // A failed engine has no clients any more.
            let _ = self.host.with(|engine| engine.kill(id));
        }
    }
}

/// Makes an error reply an error.
fn checked(reply: Reply) -> Result<Reply, Error> {
    match reply {
        Reply::Error(line) => Err(Error::new(ErrorKind::Reply, String::from_utf8_lossy(&line))),
        reply => Ok(reply),
    }
}

fn arguments<A: AsRef<[u8]>>(command: &[A]) -> Result<Vec<&[u8]>, Error> {
    if command.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "a command must have a name"));
    }
    Ok(command.iter().map(AsRef::as_ref).collect())
}

/// The error of a call whose change may or may not be committed. Redis uses the code for clients
/// that wait when a master becomes a replica.
const OUTCOME_UNKNOWN: &str =
    "UNBLOCKED the node leads no more, and it is not known whether the command took effect";

fn disconnected() -> Error {
    Error::new(ErrorKind::Stopped, "the client has been disconnected")
}

fn ensure_running(host: &Host) -> Result<(), Error> {
    if host.has_failed() {
        return Err(Failed.into());
    }
    if host.is_stopping() {
        return Err(Error::new(ErrorKind::Stopped, "the server has ended"));
    }
    Ok(())
}

/// The late replies and messages of an outbox, which holds them encoded.
fn decoded(mut bytes: &[u8]) -> Result<Vec<Reply>, Error> {
    let mut replies = Vec::new();
    loop {
        match decode(bytes) {
            Ok(Some((reply, used))) => {
                replies.push(reply);
                bytes = &bytes[used..];
            }
            Ok(None) => return Ok(replies),
            Err(error) => return Err(Error::new(ErrorKind::Failed, error.to_string())),
        }
    }
}
