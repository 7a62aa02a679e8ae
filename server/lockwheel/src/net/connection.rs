//! One socket: reads, cuts requests out of what was read, has them run, and sends what they and
//! others have to say.
//!
//! Its task reads and runs; who writes, and when, stands in [`turn`].

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lockwheel_resp::peek::peek;
use lockwheel_resp::{Parser, ProtocolError, Reply, encode};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::task::yield_now;
use tokio::time::Sleep;
use tracing::{debug, warn};

use crate::limits;
use crate::net::host::{Failed, Host, output_limit, sleep_holding_everyone, warn_overrun};
use crate::net::input::Input;
use crate::net::outbox::{Excess, Outbox};
use crate::net::output::Output;
use crate::net::slow_script::Hearing;
use crate::net::stream::Stream;
use crate::net::turn::{self, Pending};
use lockwheel_engine::buffers::{BufferSizes, Buffers};
use lockwheel_engine::session::{ClientId, Close};
use lockwheel_engine::time::Time;
use lockwheel_engine::{Engine, Flow};

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
    /// What some thread has enlisted it for and will send it: a [`turn::Pending`], or [`NOTHING`].
    owed: AtomicU8,
}

/// Bytes on their way in and out.
#[derive(Debug)]
struct Pipes {
    input: Input,
    output: Output,
    parser: Parser,
    /// What has been read ends within a request.
    starved: bool,
    /// The client will send no more.
    ended: bool,
    /// Nothing is run until the engine resumes the client.
    waiting: bool,
    /// What is in `output` is the last it gets.
    closing: bool,
    /// What is counted as the client's memory.
    counted: BufferSizes,
    /// The socket takes no more for now: the task waits for room.
    stuck: bool,
    /// Nothing is left to be done but to hang up.
    over: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    On,
    Over,
}

impl Connection {
    /// A connection for a client the engine knows already, with these buffers.
    pub(crate) fn new(
        client: ClientId,
        buffers: Arc<Buffers>,
        stream: Stream,
        parser: Parser,
    ) -> Connection {
        let pipes = Pipes {
            input: Input::default(),
            output: Output::default(),
            parser,
            starved: false,
            ended: false,
            waiting: false,
            closing: false,
            counted: BufferSizes::default(),
            stuck: false,
            over: false,
        };
        let (outbox, owed) = (Outbox::new(buffers), AtomicU8::new(NOTHING));
        Connection { client, outbox, stream, pipes: Mutex::new(pipes), owed }
    }

    /// Serves the client until it goes, is sent away, or the server ends.
    pub(crate) async fn run(self: Arc<Connection>, host: Arc<Host>) {
        if let Err(error) = self.serve(&host).await {
            debug!(client = self.client.serial, %error, "connection lost");
        }
        // At once: what the client still sends is answered by nobody, and would be an error to it.
        self.stream.hang_up();
        // A failed engine has forgotten everyone already.
        let _: Result<(), Failed> = host.with(|engine| engine.disconnect(self.client));
        host.registry.remove(self.client);
    }

    async fn serve(self: &Arc<Self>, host: &Host) -> io::Result<()> {
        // A task keeps its waker. What is put from here on wakes it, and what was before is seen.
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        self.outbox.set_waker(waker);
        let mut idleness = Idleness::default();
        let mut last_turn = 0;
        poll_fn(|context| {
            turn::come_round(&mut last_turn);
            if host.is_stopping() {
                return Poll::Ready(self.say_last_words());
            }
            match self.proceed(host, context) {
                Ok(Life::On) if idleness.is_too_long(self, host, context) => {
                    debug!(client = self.client.serial, "closing an idle client");
                    Poll::Ready(Ok(()))
                }
                Ok(Life::On) => Poll::Pending,
                Ok(Life::Over) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Does what can be done now, and sees to it that the task is woken when there is more.
    fn proceed(self: &Arc<Self>, host: &Host, context: &mut Context<'_>) -> io::Result<Life> {
        let (mut has_read, mut has_written) = (false, false);
        loop {
            if self.step(host)? == Life::Over {
                return Ok(Life::Over);
            }
            let mut pipes = self.pipes.lock();
            if pipes.stuck
                && let Poll::Ready(ready) = self.stream.poll_writable(context)
            {
                ready?;
                pipes.stuck = false;
                if !pipes.may_run() && !has_written {
                    has_written = true;
                    continue;
                }
            }
            if pipes.may_run() || has_written && !pipes.stuck && !pipes.output.is_empty() {
                // There is more than a task may run or write at once: the others come first, and
                // what has come in for them meanwhile.
                let _: Poll<()> = pin!(yield_now()).poll(context);
                return Ok(Life::On);
            }
            if !pipes.wants_input() {
                return Ok(Life::On);
            }
            match self.stream.poll_readable(context) {
                Poll::Pending => return Ok(Life::On),
                Poll::Ready(ready) => ready?,
            }
            if has_read {
                // There is more than one read takes: the others come first.
                context.waker().wake_by_ref();
                return Ok(Life::On);
            }
            has_read = self.read(&mut pipes)?;
        }
    }

    /// Runs what has been read and sees to it that what there is to say is sent.
    fn step(self: &Arc<Self>, host: &Host) -> io::Result<Life> {
        loop {
            let mut pipes = self.pipes.lock();
            pipes.take_mail(&self.outbox);
            if pipes.over {
                return Ok(Life::Over);
            }
            if pipes.may_run() {
                // Whoever waits for the engine must not hold what the busy monitor needs to serve.
                drop(pipes);
                let run = |engine: &mut Engine| {
                    self.run_requests(host, engine, &mut self.pipes.lock(), Hearing::Everything)
                };
                match host.with(run) {
                    Ok(Life::On) => {}
                    Ok(Life::Over) | Err(Failed) => return Ok(Life::Over),
                }
                pipes = self.pipes.lock();
            }
            let has_much = pipes.output.len() > limits::BATCH_REPLY_BYTES_MAX;
            if pipes.may_be_held_back() {
                turn::enlist(Arc::clone(self), Pending::Reply);
            } else {
                self.write(&mut pipes, limits::BATCH_REPLY_BYTES_MAX)?;
            }
            if pipes.is_done() {
                return Ok(Life::Over);
            }
            if !pipes.may_run() {
                pipes.input.give_back();
                return Ok(Life::On);
            }
            if has_much {
                return Ok(Life::On);
            }
        }
    }

    /// Runs complete requests until there is none, the client must wait, or there is enough to
    /// write. The caller is alone with the engine.
    fn run_requests(
        &self,
        host: &Host,
        engine: &mut Engine,
        pipes: &mut Pipes,
        hearing: Hearing,
    ) -> Life {
        // What was sent to the client before its requests run comes before their replies.
        pipes.take_mail(&self.outbox);
        if pipes.over {
            return Life::Over;
        }
        let before = pipes.output.len();
        let mut present = Present::read(host);
        for done in 0..limits::BATCH_REQUESTS_MAX {
            let enough = pipes.output.len() > before + limits::BATCH_REPLY_BYTES_MAX;
            if enough || !pipes.may_run() || !pipes.are_heard(hearing) {
                break;
            }
            // A single request has nothing to gain.
            if done % lockwheel_engine::limits::LOOK_AHEAD_REQUESTS == 1 {
                engine.look_ahead(self.client, pipes.input.unread());
            }
            let time = present.time(host);
            if self.run_request(host, engine, pipes, time) == Life::Over {
                return Life::Over;
            }
        }
        engine.stats.net_output_bytes += (pipes.output.len() - before) as u64;
        let limit = output_limit(engine, self.client);
        self.outbox.set_unsent(pipes.output.len());
        self.count_buffers(pipes);
        match self.outbox.excess(limit, || host.now().now) {
            Excess::Over(bytes) => {
                warn_overrun(self.client, bytes);
                return Life::Over;
            }
            Excess::Soft(Some(moment)) => engine.check_output_at(self.client, moment),
            Excess::Soft(None) | Excess::None => {}
        }
        Life::On
    }

    /// Counts what the client's buffers take as its memory.
    fn count_buffers(&self, pipes: &mut Pipes) {
        let sizes = pipes.sizes();
        if sizes != pipes.counted {
            pipes.counted = sizes;
            self.outbox.buffers.set(sizes);
        }
    }

    /// Ends the connection from outside, whatever its task is at, once what has been answered
    /// already is sent, as far as it goes.
    pub(crate) fn cut_off(&self) {
        if let Some(mut pipes) = self.pipes.try_lock() {
            // It may have gone already.
            let _ = self.write(&mut pipes, usize::MAX);
            pipes.over = true;
        }
        self.stream.hang_up();
        self.outbox.wake();
    }

    /// The server ends: sends what there is to say, as far as it goes.
    fn say_last_words(&self) -> io::Result<()> {
        let mut pipes = self.pipes.lock();
        pipes.take_mail(&self.outbox);
        pipes.stuck = false;
        self.write(&mut pipes, usize::MAX)
    }

    /// Sends what the client is owed. What the socket does not take, and whatever else there is to
    /// do, is left to the task.
    pub(crate) fn send_owed(&self) {
        self.owed.store(NOTHING, Ordering::SeqCst);
        let Some(mut pipes) = self.pipes.try_lock() else {
            // Whoever is at it may have looked before there was something.
            return self.leave_to_its_task();
        };
        let was_stuck = pipes.stuck;
        pipes.take_mail(&self.outbox);
        if self.write(&mut pipes, limits::BATCH_REPLY_BYTES_MAX).is_err() {
            pipes.over = true;
        }
        if pipes.needs_its_task() || pipes.stuck && !was_stuck {
            self.leave_to_its_task();
        }
    }

    /// Marks it as one that will be sent what it is owed, if it is not; says if it was not. A
    /// reply counts anew where only messages were owed: it leaves earlier.
    pub(crate) fn becomes_owed(&self, owed: Pending) -> bool {
        self.owed.fetch_max(mark(owed), Ordering::SeqCst) < mark(owed)
    }

    /// Whether this is what it is marked for.
    pub(crate) fn is_owed(&self, owed: Pending) -> bool {
        self.owed.load(Ordering::SeqCst) == mark(owed)
    }

    /// The task is to send what there is.
    pub(crate) fn leave_to_its_task(&self) {
        self.owed.store(NOTHING, Ordering::SeqCst);
        self.outbox.wake();
    }

    /// Runs the next request, if all of it has been read.
    fn run_request(&self, host: &Host, engine: &mut Engine, pipes: &mut Pipes, time: Time) -> Life {
        let Some(state) = engine.sessions.get(self.client) else { return Life::Over };
        pipes.parser.set_authenticated(state.authenticated);
        let bulk_bytes_max = engine.settings.proto_max_bulk_len_bytes;
        pipes.parser.set_bulk_bytes_max(usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX));
        let used = match pipes.parser.parse(pipes.input.unread()) {
            Ok(Some(used)) => used,
            Ok(None) => {
                pipes.starved = true;
                let max = engine.settings.client_query_buffer_limit_bytes;
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
                encode(&Reply::error(error.to_string()), state.protocol, pipes.output.tail());
                pipes.input.clear();
                pipes.closing = true;
                return Life::On;
            }
        };
        engine.stats.net_input_bytes += used as u64;
        let flow = {
            let mut argv: SmallVec<[&[u8]; ARGUMENTS_IN_PLACE]> = SmallVec::new();
            pipes.parser.iter(pipes.input.unread()).for_each(|argument| argv.push(argument));
            match argv.first() {
                None => Flow::Next,
                Some(name) if is_http(name) => {
                    warn!(client = self.client.serial, "closing a client that speaks HTTP");
                    return Life::Over;
                }
                Some(_) => engine.run(time, self.client, &argv, pipes.output.tail()),
            }
        };
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
            Flow::Clock(order) => {
                host.obey_clock_order(engine, order);
                // Whoever moves the clock has not been idle meanwhile.
                if let Some(state) = engine.sessions.get_mut(self.client) {
                    state.active_at = host.now().now;
                }
            }
            Flow::Shutdown => {
                pipes.closing = true;
                host.stop();
            }
        }
        host.pass_on(engine);
        Life::On
    }

    /// Reads what there is; says if that was anything.
    fn read(&self, pipes: &mut Pipes) -> io::Result<bool> {
        let needed = pipes.parser.needed().min(limits::READ_BYTES_MAX);
        let outcome = self.stream.read(pipes.input.room(needed));
        pipes.has_read(outcome)
    }

    /// Writes as much as the socket takes, but only about `most` bytes: the task writes the rest.
    fn write(&self, pipes: &mut Pipes, most: usize) -> io::Result<()> {
        if pipes.closing {
            self.stream.begin_last_words();
        }
        let mut total = 0;
        while !pipes.output.is_empty() && !pipes.stuck {
            if total > most {
                pipes.stuck = true;
                break;
            }
            match self.stream.write(pipes.output.front()) {
                Ok(written) => {
                    total += written;
                    pipes.has_written(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => pipes.stuck = true,
                Err(error) => return Err(error),
            }
        }
        self.outbox.set_unsent(pipes.output.len());
        self.count_buffers(pipes);
        Ok(())
    }

    /// Serves the client past the runtime, with the engine its caller is alone with: reads what
    /// there is, runs it, writes what can be written. For when a script keeps the client's own
    /// thread busy. Does nothing if that thread is in the middle of this connection.
    pub(crate) fn serve_directly(&self, host: &Host, engine: &mut Engine, hearing: Hearing) {
        let Some(mut pipes) = self.pipes.try_lock() else { return };
        if pipes.waiting || pipes.closing || pipes.over {
            return;
        }
        if pipes.wants_input() {
            let outcome = self.stream.read_directly(pipes.input.room(limits::READ_BYTES));
            // Its own thread hears of an end or an error in time.
            if outcome.as_ref().is_ok_and(|&read| read > 0) {
                let _ = pipes.has_read(outcome);
            }
        }
        // There may be requests its own thread has read: now that waits for the engine.
        if pipes.may_run() && self.run_requests(host, engine, &mut pipes, hearing) == Life::Over {
            pipes.closing = true;
            pipes.output.clear();
        }
        while !pipes.output.is_empty() {
            match self.stream.write_directly(pipes.output.front()) {
                Ok(written) if written > 0 => pipes.has_written(written),
                _ => break,
            }
        }
        self.outbox.set_unsent(pipes.output.len());
        self.count_buffers(&mut pipes);
        self.outbox.wake();
    }

    /// Runs what the client has sent, with the engine its caller is alone with: its wait is over,
    /// and the clock is about to be moved on. What comes of it is still to be sent. Nobody holds
    /// the pipes who waits for the engine.
    pub(crate) fn go_on(&self, host: &Host, engine: &mut Engine) {
        let mut pipes = self.pipes.lock();
        if self.run_requests(host, engine, &mut pipes, Hearing::Everything) == Life::Over {
            pipes.over = true;
        }
    }

    /// Whether the client has hung up, even if its own thread has not come to see it.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.stream.is_at_end()
    }

    /// How long the client may at least go on saying nothing. Clients that wait or listen are left
    /// alone, as in Redis.
    fn may_idle(&self, host: &Host, timeout_seconds: u32) -> Duration {
        let idle = host.with(|engine| {
            let state = engine.sessions.get(self.client)?;
            let busy = state.blocked.is_some() || state.is_subscriber();
            (!busy).then(|| host.now().now.0.saturating_sub(state.active_at.0))
        });
        let idle_ms = u64::try_from(idle.ok().flatten().unwrap_or(0)).unwrap_or(0);
        Duration::from_millis((u64::from(timeout_seconds) * 1000).saturating_sub(idle_ms))
    }
}

impl Pipes {
    /// Whether there may be a request to run.
    fn may_run(&self) -> bool {
        !self.waiting && !self.closing && !self.starved && !self.input.is_empty()
    }

    /// Whether what it has sent is heard now.
    fn are_heard(&self, hearing: Hearing) -> bool {
        hearing == Hearing::Everything
            || peek(self.input.unread()).next().is_some_and(|[command, subcommand, ..]| {
                command.eq_ignore_ascii_case(b"lockwheel")
                    && subcommand.eq_ignore_ascii_case(b"clock")
            })
    }

    /// Whether to read on. A client that is not answered for now may send ahead, but not without
    /// bound: only half a request is a reason to read more than one read's worth.
    fn wants_input(&self) -> bool {
        let room = self.starved || self.input.len() < limits::READ_BYTES_MAX;
        room && !self.ended && !self.closing
    }

    /// Whether nothing is left to do. A client that has shut down its side still gets its replies,
    /// but nobody is woken for one that waits: it may be gone.
    fn is_done(&self) -> bool {
        let silent = self.closing || (self.ended && !self.may_run());
        (self.output.is_empty() && silent) || (self.ended && self.waiting)
    }

    /// What counts as the client's memory: neither what is sent when the turn ends, nor buffers
    /// that are smaller than what counts for each client anyway.
    fn sizes(&self) -> BufferSizes {
        let mut sizes = BufferSizes::default();
        if !self.input.is_empty() {
            sizes.input = self.input.len();
            sizes.input_free = self.input.free();
            sizes.arguments = self.parser.unfinished_bytes();
        }
        if self.stuck || self.output.len() > limits::HELD_BACK_BYTES {
            self.output.measure(&mut sizes);
        }
        sizes
    }

    /// Whether what there is to send can wait for the end of the turn.
    fn may_be_held_back(&self) -> bool {
        let short = (1..=limits::HELD_BACK_BYTES).contains(&self.output.len());
        short && !self.stuck && !self.closing && !self.ended
    }

    /// Whether there is something that only the connection's task does.
    fn needs_its_task(&self) -> bool {
        self.over || self.closing || self.ended || self.may_run()
    }

    /// Takes what others have sent.
    fn take_mail(&mut self, outbox: &Outbox) {
        let (resume, close) = outbox.take_into(&mut self.output, &mut self.counted);
        self.waiting &= !resume;
        self.closing |= close.is_some();
        self.over |= close == Some(Close::Now);
    }

    /// This is what came of reading; says if it was anything.
    fn has_read(&mut self, outcome: io::Result<usize>) -> io::Result<bool> {
        match outcome {
            Ok(0) => self.ended = true,
            Ok(read) => {
                self.input.filled(read);
                self.starved = false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// So much of the output has been sent.
    fn has_written(&mut self, written: usize) {
        self.output.advance(written);
        self.stuck &= !self.output.is_empty();
    }
}

/// The moment that some requests of one connection share. Whatever may take long ends the turn.
struct Present {
    time: Time,
    turn: u64,
    /// How many more requests it is for.
    left: u32,
}

impl Present {
    fn read(host: &Host) -> Present {
        Present { time: host.now(), turn: turn::number(), left: limits::REQUESTS_IN_A_MOMENT }
    }

    /// The moment of the next request.
    fn time(&mut self, host: &Host) -> Time {
        if self.left == 0 || self.turn != turn::number() {
            *self = Present::read(host);
        }
        self.left -= 1;
        self.time
    }
}

/// How long a client has said nothing, if `timeout` is set.
#[derive(Default)]
struct Idleness {
    timeout_seconds: u32,
    /// How often the clock had been moved, stopped or scaled when the timer was set.
    clock_changes: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Idleness {
    /// Whether the client is to go; if not, the task is woken when that is to be asked again.
    fn is_too_long(
        &mut self,
        connection: &Connection,
        host: &Host,
        context: &mut Context<'_>,
    ) -> bool {
        let timeout_seconds = host.idle_timeout_seconds();
        let clock_changes = host.clock.changes();
        if (self.timeout_seconds, self.clock_changes) != (timeout_seconds, clock_changes) {
            *self = Idleness { timeout_seconds, clock_changes, timer: None };
        }
        if timeout_seconds == 0 {
            return false;
        }
        loop {
            if let Some(timer) = &mut self.timer
                && timer.as_mut().poll(context).is_pending()
            {
                return false;
            }
            let left = connection.may_idle(host, timeout_seconds);
            if left.is_zero() {
                return true;
            }
            let Some(left) = host.clock.real(left) else { return false };
            self.timer = Some(Box::pin(tokio::time::sleep(left)));
        }
    }
}

/// Marks of a connection: it is owed nothing, or one of two things, the higher the sooner.
const NOTHING: u8 = 0;

const fn mark(owed: Pending) -> u8 {
    match owed {
        Pending::Messages => 1,
        Pending::Reply => 2,
    }
}

/// Arguments of a request that need no memory of their own. Scripts of lock libraries have fewer.
const ARGUMENTS_IN_PLACE: usize = 16;

/// Names of requests that only a browser would send: somebody makes it talk to us.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
