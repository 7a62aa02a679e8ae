//! A client without a socket: commands from the program the server lives in.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use lockwheel_resp::decode::decode;
use lockwheel_resp::{Protocol, Reply, encode};

use crate::error::{Error, ErrorKind};
use crate::net::host::{Failed, Host, sleep_holding_everyone};
use crate::net::outbox::{Mail, Outbox};
use crate::net::registry::Receiver;
use lockwheel_engine::Flow;
use lockwheel_engine::session::{ClientId, Origin};

/// A connection within this process, with a session of its own: a selected database, a
/// transaction, watches, subscriptions. It speaks RESP3 and needs no password.
///
/// ```
/// use lockwheel::{Reply, Server};
///
/// let server = Server::start()?;
/// let mut holder = server.client()?;
/// holder.call(&["WATCH", "lock"])?;
/// server.call(&["SET", "lock", "somebody else"])?;
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

/// Why a command has no reply yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Its reply comes when the wait is over.
    ForReply,
    /// It is to be run again then.
    ToRunAgain,
}

impl Client {
    pub(crate) fn connect(host: &Arc<Host>) -> Result<Client, Error> {
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
                };
                let id = engine.connect(origin, host.now());
                let state = engine.sessions.get_mut(id)?;
                state.protocol = Protocol::Resp3;
                state.authenticated = true;
                let outbox = Arc::new(Outbox::new(Arc::clone(&state.buffers)));
                host.registry.add(id, Receiver::InProcess(Arc::clone(&outbox)));
                Some((id, outbox))
            })?
            .ok_or_else(disconnected)?;
        let host = Arc::clone(host);
        Ok(Client { host, id, outbox, pushes: VecDeque::new(), disconnected: false })
    }

    /// Runs one command and returns its reply; an error the command answers with is a
    /// [`Reply::Error`]. Returns at once, unless the command waits: a blocking pop, or anything
    /// while `CLIENT PAUSE` is in force.
    ///
    /// # Errors
    /// If there is no command, the client has been disconnected, or the server has ended.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        let argv = arguments(command)?;
        let mut out = BytesMut::new();
        while let Some(wait) = self.run(&argv, &mut out)? {
            while !self.is_over(wait, &mut out)? {
                self.wait();
            }
            if wait == Wait::ForReply {
                break;
            }
        }
        self.reply(&out)
    }

    /// As [`Client::call`], for asynchronous code on any runtime: where the command waits, the
    /// thread does not. Scripts and all else a command does still run on the caller's thread.
    ///
    /// A call that is dropped while its command waits disconnects the client: nobody could tell
    /// the late reply from a message.
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
        let argv = arguments(command)?;
        let mut out = BytesMut::new();
        while let Some(wait) = self.run(&argv, &mut out)? {
            let mut unfinished = Unfinished { host: Arc::clone(&self.host), id: Some(self.id) };
            while !self.is_over(wait, &mut out)? {
                self.outbox.woken().await;
            }
            unfinished.id = None;
            if wait == Wait::ForReply {
                break;
            }
        }
        self.reply(&out)
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

    /// As [`Client::receive`], for asynchronous code on any runtime. Nothing is lost if it is
    /// dropped, so it may stand in a `select!`.
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
        let mail = self.outbox.take();
        self.keep(&mail)?;
        match self.pushes.pop_front() {
            None if self.disconnected => Err(disconnected()),
            push => Ok(push),
        }
    }

    /// The number `CLIENT ID` answers with.
    pub fn id(&self) -> u64 {
        self.id.serial
    }

    /// Runs a command. If it has to wait, says so; else its reply is in `out`.
    fn run(&mut self, argv: &[&[u8]], out: &mut BytesMut) -> Result<Option<Wait>, Error> {
        ensure_running(&self.host)?;
        if self.disconnected {
            return Err(disconnected());
        }
        let (flow, mail) = self.host.with(|engine| {
            let mail = self.outbox.take();
            let flow = engine.run(self.host.now(), self.id, argv, out);
            match flow {
                Flow::Sleep(span) => sleep_holding_everyone(span),
                Flow::Clock(order) => self.host.obey_clock_order(engine, order),
                _ => {}
            }
            (flow, mail)
        })?;
        self.keep(&mail)?;
        if mail.close.is_some() {
            return Err(disconnected());
        }
        match flow {
            Flow::Next | Flow::Sleep(_) | Flow::Clock(_) => Ok(None),
            Flow::Wait => Ok(Some(Wait::ForReply)),
            Flow::Again => Ok(Some(Wait::ToRunAgain)),
            Flow::Close => {
                self.disconnected = true;
                Ok(None)
            }
            Flow::Shutdown => {
                self.host.stop();
                out.clear();
                encode(&Reply::OK, Protocol::Resp3, out);
                Ok(None)
            }
        }
    }

    /// Whether a wait is over, to be asked whenever mail may have come.
    fn is_over(&mut self, wait: Wait, out: &mut BytesMut) -> Result<bool, Error> {
        let mail = self.outbox.take();
        match wait {
            Wait::ForReply => out.extend_from_slice(&mail.bytes),
            Wait::ToRunAgain => self.keep(&mail)?,
        }
        if mail.resume {
            return Ok(true);
        }
        if mail.close.is_some() {
            self.disconnected = true;
            return Err(disconnected());
        }
        ensure_running(&self.host)?;
        Ok(false)
    }

    /// Keeps this thread waiting until there may be mail, or the server ends.
    fn wait(&self) {
        self.outbox.wait(|| self.host.is_stopping());
    }

    fn keep(&mut self, mail: &Mail) -> Result<(), Error> {
        self.disconnected |= mail.close.is_some();
        self.pushes.extend(replies(&mail.bytes)?);
        Ok(())
    }

    /// The reply among what a command wrote; messages that came with it are kept. A subscription
    /// is confirmed by a push, which is its reply then.
    fn reply(&mut self, out: &[u8]) -> Result<Reply, Error> {
        let mut replies = replies(out)?;
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
        // A failed engine has forgotten everyone already.
        let _ = self.host.with(|engine| engine.disconnect(self.id));
        self.host.registry.remove(self.id);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id.serial).finish_non_exhaustive()
    }
}

/// A call whose command waits. Disconnects the client if the caller goes away before it is over.
struct Unfinished {
    host: Arc<Host>,
    id: Option<ClientId>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // A failed engine has forgotten everyone already.
            let _ = self.host.with(|engine| engine.kill(id));
        }
    }
}

fn arguments<A: AsRef<[u8]>>(command: &[A]) -> Result<Vec<&[u8]>, Error> {
    if command.is_empty() {
        return Err(Error::new(ErrorKind::Usage, "a command needs at least a name"));
    }
    Ok(command.iter().map(AsRef::as_ref).collect())
}

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

fn replies(mut bytes: &[u8]) -> Result<Vec<Reply>, Error> {
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
