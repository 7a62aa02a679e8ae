//! One socket: reads, cuts requests out of what was read, has them run, and writes what they and
//! others have to say.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use leasehold_resp::{Parser, ProtocolError, Reply, encode};
use parking_lot::Mutex;
use tracing::{debug, warn};

use crate::engine::client::{ClientId, Close};
use crate::engine::{Engine, Flow};
use crate::limits;
use crate::net::host::{Failed, Host, output_limit, sleep_holding_everyone, warn_overrun};
use crate::net::outbox::Outbox;
use crate::net::stream::Stream;

/// A connected client. Its own task drives it; while a script keeps that task's thread busy,
/// [`crate::net::busy`] does.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The client's name in the engine.
    pub(crate) client: ClientId,
    /// What others send it.
    pub(crate) outbox: Outbox,
    stream: Stream,
    pipes: Mutex<Pipes>,
}

/// Bytes on their way in and out.
#[derive(Debug)]
struct Pipes {
    input: BytesMut,
    output: BytesMut,
    parser: Parser,
    /// What has been read ends within a request.
    starved: bool,
    /// The client will send no more.
    ended: bool,
    /// Nothing is run until the engine resumes the client.
    waiting: bool,
    /// What is in `output` is the last it gets.
    closing: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    On,
    Over,
}

impl Connection {
    /// A connection for a client the engine knows already.
    pub(crate) fn new(client: ClientId, stream: Stream, parser: Parser) -> Connection {
        let pipes = Pipes {
            input: BytesMut::new(),
            output: BytesMut::new(),
            parser,
            starved: false,
            ended: false,
            waiting: false,
            closing: false,
        };
        Connection { client, outbox: Outbox::default(), stream, pipes: Mutex::new(pipes) }
    }

    /// Serves the client until it goes, is sent away, or the server ends.
    pub(crate) async fn run(self: Arc<Connection>, host: Arc<Host>) {
        if let Err(error) = self.serve(&host).await {
            debug!(client = self.client.serial, %error, "connection lost");
        }
        // At once: what the client still sends is answered by nobody, and would be an error to it.
        self.hang_up();
        // A failed engine has forgotten everyone already.
        let _: Result<(), Failed> = host.with(|engine| engine.disconnect(self.client));
        host.registry.remove(self.client);
    }

    async fn serve(&self, host: &Host) -> io::Result<()> {
        loop {
            if self.step(host)? == Life::Over {
                return Ok(());
            }
            let (wants, owes) = {
                let pipes = self.pipes.lock();
                (pipes.wants_input(), !pipes.output.is_empty())
            };
            tokio::select! {
                ready = self.stream.readable(), if wants => {
                    ready?;
                    self.read()?;
                }
                ready = self.stream.writable(), if owes => ready?,
                () = self.outbox.woken() => {}
                () = host.shutdown.cancelled() => return self.say_last_words(),
                () = sleep_or_never(self.may_idle(host)) => {
                    if self.may_idle(host).is_some_and(|left| left.is_zero()) {
                        debug!(client = self.client.serial, "closing an idle client");
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Runs what has been read and writes what there is to say.
    fn step(&self, host: &Host) -> io::Result<Life> {
        loop {
            let mut pipes = self.pipes.lock();
            if pipes.take_mail(&self.outbox) == Life::Over {
                return Ok(Life::Over);
            }
            if pipes.may_run() {
                // Whoever waits for the engine must not hold what the busy desk needs to serve.
                drop(pipes);
                let run =
                    |engine: &mut Engine| self.run_requests(host, engine, &mut self.pipes.lock());
                match host.with(run) {
                    Ok(Life::On) => {}
                    Ok(Life::Over) | Err(Failed) => return Ok(Life::Over),
                }
                pipes = self.pipes.lock();
            }
            self.write(&mut pipes)?;
            self.outbox.set_unsent(pipes.output.len());
            if pipes.is_done() {
                return Ok(Life::Over);
            }
            // If output held requests back, there may be room again.
            if !pipes.may_run() || pipes.is_congested() {
                return Ok(Life::On);
            }
        }
    }

    /// Runs complete requests until there is none, the client must wait, or there is enough to
    /// write. The caller is alone with the engine.
    fn run_requests(&self, host: &Host, engine: &mut Engine, pipes: &mut Pipes) -> Life {
        // What was sent to the client before its requests run comes before their replies.
        if pipes.take_mail(&self.outbox) == Life::Over {
            return Life::Over;
        }
        let before = pipes.output.len();
        for _ in 0..limits::BATCH_REQUESTS_MAX {
            if !pipes.may_run() || pipes.is_congested() {
                break;
            }
            if self.run_request(host, engine, pipes) == Life::Over {
                return Life::Over;
            }
        }
        engine.stats.net_output_bytes += (pipes.output.len() - before) as u64;
        let limit = output_limit(engine, self.client);
        match self.outbox.check_unsent(pipes.output.len(), limit, host.now().now) {
            Some(bytes) => {
                warn_overrun(self.client, bytes);
                Life::Over
            }
            None => Life::On,
        }
    }

    /// Ends the connection from this side, from whatever thread.
    pub(crate) fn hang_up(&self) {
        self.stream.hang_up();
    }

    /// The server ends: sends what has been answered already, as far as it goes.
    fn say_last_words(&self) -> io::Result<()> {
        self.write(&mut self.pipes.lock())
    }

    /// Runs the next request, if all of it has been read.
    fn run_request(&self, host: &Host, engine: &mut Engine, pipes: &mut Pipes) -> Life {
        let Some(state) = engine.clients.get(self.client) else { return Life::Over };
        pipes.parser.set_authenticated(state.authenticated);
        let bulk_bytes_max = engine.config.proto_max_bulk_len_bytes;
        pipes.parser.set_bulk_bytes_max(usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX));
        let used = match pipes.parser.parse(&pipes.input) {
            Ok(Some(used)) => used,
            Ok(None) => {
                pipes.starved = true;
                let max = engine.config.client_query_buffer_limit_bytes;
                if pipes.input.len() as u64 <= max {
                    return Life::On;
                }
                warn!(client = self.client.serial, "closing a client: query buffer limit");
                return Life::Over;
            }
            Err(ProtocolError::QueryBufferFull) => {
                warn!(client = self.client.serial, "closing a client: request too large");
                return Life::Over;
            }
            Err(error) => {
                debug!(client = self.client.serial, %error, "protocol error");
                encode(&Reply::error(error.to_string()), state.protocol, &mut pipes.output);
                pipes.input.clear();
                pipes.closing = true;
                return Life::On;
            }
        };
        engine.stats.net_input_bytes += used as u64;
        let mut argv = Vec::new();
        pipes.parser.args(&pipes.input, &mut argv);
        let Some(&name) = argv.first() else {
            pipes.input.advance(used);
            return Life::On;
        };
        if is_http(name) {
            warn!(client = self.client.serial, "closing a client that speaks HTTP");
            return Life::Over;
        }
        let flow = engine.run(host.now(), self.client, &argv, &mut pipes.output);
        if flow != Flow::Again {
            pipes.input.advance(used);
        }
        match flow {
            Flow::Next => {}
            Flow::Wait | Flow::Again => pipes.waiting = true,
            Flow::Close => {
                // Whoever sees its last reply finds it gone.
                engine.disconnect(self.client);
                pipes.closing = true;
            }
            Flow::Sleep(span) => sleep_holding_everyone(span),
            Flow::Shutdown => {
                pipes.closing = true;
                host.stop();
            }
        }
        host.pass_on(engine);
        Life::On
    }

    /// Reads what there is.
    fn read(&self) -> io::Result<()> {
        let mut pipes = self.pipes.lock();
        let needed = pipes.parser.needed().min(limits::READ_BYTES_MAX);
        pipes.input.reserve(needed.max(limits::READ_BYTES));
        match self.stream.try_read(&mut pipes.input) {
            Ok(0) => pipes.ended = true,
            Ok(_) => pipes.starved = false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes as much as the socket takes.
    fn write(&self, pipes: &mut Pipes) -> io::Result<()> {
        if pipes.closing {
            self.stream.begin_last_words();
        }
        while !pipes.output.is_empty() {
            match self.stream.try_write(&pipes.output) {
                Ok(written) => pipes.output.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if pipes.output.is_empty() && pipes.output.capacity() > limits::IDLE_BUFFER_BYTES {
            pipes.output = BytesMut::new();
        }
        if pipes.input.is_empty() && pipes.input.capacity() > limits::IDLE_BUFFER_BYTES {
            pipes.input = BytesMut::new();
        }
        Ok(())
    }

    /// Serves the client past the runtime, with the engine its caller is alone with: reads what
    /// there is, runs it, writes what can be written. For when a script keeps the client's own
    /// thread busy. Does nothing if that thread is in the middle of this connection.
    pub(crate) fn serve_directly(&self, host: &Host, engine: &mut Engine) {
        let Some(mut pipes) = self.pipes.try_lock() else { return };
        if pipes.waiting || pipes.closing {
            return;
        }
        if pipes.wants_input() {
            let mut chunk = [0; limits::READ_BYTES];
            match self.stream.read_directly(&mut chunk) {
                Ok(read) if read > 0 => {
                    pipes.input.extend_from_slice(&chunk[..read]);
                    pipes.starved = false;
                }
                // Its own thread hears of an end or an error in time.
                _ => {}
            }
        }
        // There may be requests its own thread has read: now that waits for the engine.
        if pipes.may_run() && self.run_requests(host, engine, &mut pipes) == Life::Over {
            pipes.closing = true;
            pipes.output.clear();
        }
        while !pipes.output.is_empty() {
            match self.stream.write_directly(&pipes.output) {
                Ok(written) if written > 0 => pipes.output.advance(written),
                _ => break,
            }
        }
        self.outbox.set_unsent(pipes.output.len());
        self.outbox.wake();
    }

    /// Whether the client has hung up, even if its own thread has not come to see it.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.stream.is_at_end()
    }

    /// How long the client may go on saying nothing (`timeout`); `None` for ever. Clients that
    /// wait or listen are left alone, as in Redis.
    fn may_idle(&self, host: &Host) -> Option<Duration> {
        let seconds = host.idle_timeout_seconds();
        if seconds == 0 {
            return None;
        }
        let left = host.with(|engine| {
            let state = engine.clients.get(self.client)?;
            let busy = state.blocked.is_some() || state.is_subscriber();
            (!busy).then(|| host.now().now.0.saturating_sub(state.active_at.0))
        });
        let idle_ms = u64::try_from(left.ok().flatten()?).unwrap_or(0);
        Some(Duration::from_millis((u64::from(seconds) * 1000).saturating_sub(idle_ms)))
    }
}

impl Pipes {
    /// Whether there may be a request to run.
    fn may_run(&self) -> bool {
        !self.waiting && !self.closing && !self.starved && !self.input.is_empty()
    }

    /// Whether to read on. A client that is not answered for now may send ahead, but not without
    /// bound: only half a request is a reason to read more than one read's worth.
    fn wants_input(&self) -> bool {
        let room = self.starved || self.input.len() < limits::READ_BYTES_MAX;
        room && !self.ended && !self.closing && !self.is_congested()
    }

    /// Whether nothing is left to do. A client that has shut down its side still gets its replies,
    /// but nobody is woken for one that waits: it may be gone.
    fn is_done(&self) -> bool {
        let silent = self.closing || (self.ended && !self.may_run());
        (self.output.is_empty() && silent) || (self.ended && self.waiting)
    }

    /// Whether the client should read before it is answered more.
    fn is_congested(&self) -> bool {
        self.output.len() > limits::OUTBOX_PAUSE_BYTES
    }

    /// Takes what others have sent; says whether the client is to go at once.
    fn take_mail(&mut self, outbox: &Outbox) -> Life {
        let mail = outbox.take();
        self.output.extend_from_slice(&mail.bytes);
        self.waiting &= !mail.resume;
        self.closing |= mail.close.is_some();
        if mail.close == Some(Close::Now) { Life::Over } else { Life::On }
    }
}

/// Names of requests that only a browser would send: somebody makes it talk to us.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

async fn sleep_or_never(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}
