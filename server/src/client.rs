//! A client without a socket: commands from the program the server lives in.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;
use leasehold_resp::decode::decode;
use leasehold_resp::{Protocol, Reply};

use crate::engine::Flow;
use crate::engine::client::{ClientId, Origin};
use crate::error::{Error, ErrorKind};
use crate::net::host::{Failed, Host, sleep_holding_everyone};
use crate::net::outbox::{Mail, Outbox};
use crate::net::registry::Peer;

/// A connection within this process, with a session of its own: a selected database, a
/// transaction, watches, subscriptions. It speaks RESP3 and needs no password.
///
/// ```
/// use leasehold::{Reply, Server};
///
/// let server = Server::start()?;
/// let mut holder = server.client()?;
/// holder.call(&["WATCH", "lock"])?;
/// server.call(&["SET", "lock", "somebody else"])?;
/// holder.call(&["MULTI"])?;
/// holder.call(&["SET", "lock", "mine"])?;
/// assert_eq!(holder.call(&["EXEC"])?, Reply::Null);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub struct Client {
    host: Arc<Host>,
    id: ClientId,
    outbox: Arc<Outbox>,
    pushes: VecDeque<Reply>,
}

impl Client {
    pub(crate) fn connect(host: &Arc<Host>) -> Result<Client, Error> {
        ensure_running(host)?;
        let outbox = Arc::new(Outbox::default());
        let id = host.with(|engine| {
            let origin = Origin {
                address: "in-process:0".to_owned(),
                local_address: "in-process:0".to_owned(),
                descriptor: -1,
                unix: false,
                local: true,
            };
            let id = engine.connect(origin, host.now());
            if let Some(state) = engine.clients.get_mut(id) {
                state.protocol = Protocol::Resp3;
                state.authenticated = true;
            }
            host.registry.add(id, Peer::InProcess(Arc::clone(&outbox)));
            id
        })?;
        Ok(Client { host: Arc::clone(host), id, outbox, pushes: VecDeque::new() })
    }

    /// Runs one command and returns its reply; an error the command answers with is a
    /// [`Reply::Error`]. Returns at once, unless the command waits: a blocking pop, or anything
    /// while `CLIENT PAUSE` is in force.
    ///
    /// # Errors
    /// If there is no command, the client has been disconnected, or the server has ended.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<Reply, Error> {
        if command.is_empty() {
            return Err(Error::new(ErrorKind::Usage, "a command needs at least a name"));
        }
        ensure_running(&self.host)?;
        let argv: Vec<&[u8]> = command.iter().map(AsRef::as_ref).collect();
        let mut out = BytesMut::new();
        loop {
            let (flow, mail) = self.host.with(|engine| {
                let mail = self.outbox.take();
                let flow = engine.run(self.host.now(), self.id, &argv, &mut out);
                if let Flow::Sleep(span) = flow {
                    sleep_holding_everyone(span);
                }
                (flow, mail)
            })?;
            self.keep_pushes(&mail)?;
            match flow {
                Flow::Next | Flow::Close | Flow::Sleep(_) => break,
                Flow::Wait => {
                    let mail = self.wait()?;
                    out.extend_from_slice(&mail.bytes);
                    if mail.resume {
                        break;
                    }
                }
                Flow::Again => {
                    self.wait_for_resume()?;
                    out.clear();
                }
                Flow::Shutdown => {
                    self.host.stop();
                    return Ok(Reply::OK);
                }
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
            if let Some(push) = self.pushes.pop_front() {
                return Ok(push);
            }
            let mail = self.wait()?;
            self.keep_pushes(&mail)?;
        }
    }

    /// The next message of a subscription, if one has arrived.
    ///
    /// # Errors
    /// If the client has been disconnected.
    pub fn try_receive(&mut self) -> Result<Option<Reply>, Error> {
        let mail = self.outbox.take();
        self.keep_pushes(&mail)?;
        Ok(self.pushes.pop_front())
    }

    /// The number `CLIENT ID` answers with.
    pub fn id(&self) -> u64 {
        self.id.serial
    }

    fn wait_for_resume(&mut self) -> Result<(), Error> {
        loop {
            let mail = self.wait()?;
            let resume = mail.resume;
            self.keep_pushes(&mail)?;
            if resume {
                return Ok(());
            }
        }
    }

    fn wait(&self) -> Result<Mail, Error> {
        let over = || self.host.shutdown.is_cancelled();
        let mail = self.outbox.wait(over);
        let nothing = mail.bytes.is_empty() && !mail.resume;
        if nothing && mail.close.is_some() {
            return Err(Error::new(ErrorKind::Stopped, "the client has been disconnected"));
        }
        if nothing {
            ensure_running(&self.host)?;
        }
        Ok(mail)
    }

    fn keep_pushes(&mut self, mail: &Mail) -> Result<(), Error> {
        self.pushes.extend(replies(&mail.bytes)?);
        if mail.close.is_some() {
            return Err(Error::new(ErrorKind::Stopped, "the client has been disconnected"));
        }
        Ok(())
    }

    /// The reply among what a command wrote; messages that came with it are kept. A subscription
    /// is confirmed by a push, which is its reply then.
    fn reply(&mut self, out: &[u8]) -> Result<Reply, Error> {
        let mut replies = replies(out)?;
        let at = replies.iter().position(|reply| !matches!(reply, Reply::Push(_))).unwrap_or(0);
        if replies.is_empty() {
            return Ok(Reply::NOTHING);
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

fn ensure_running(host: &Host) -> Result<(), Error> {
    if host.has_failed() {
        return Err(Failed.into());
    }
    if host.shutdown.is_cancelled() {
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
