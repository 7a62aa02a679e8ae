//! One connection: reads from the socket, parses and runs requests, and sends replies and messages.
//!
//! The connection's task reads and runs. [`turn`] describes when output is written, and by which
//! thread.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lockwheel_resp::peek::peek;
use lockwheel_resp::{Parser, ProtocolError, Reply, encode};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tokio::task::yield_now;
use tokio::time::Sleep;
use tracing::{debug, warn};

use crate::durability::commit_gate::CommitGate;
use crate::host::slow_script::RequestFilter;
use crate::host::{Failed, Host, Next, log_client, output_limit, warn_overrun};
use crate::limits;
use crate::net::input::Input;
use crate::net::outbox::{LimitCheck, Outbox};
use crate::net::output::Output;
use crate::net::stream::Stream;
use crate::net::turn::{self, Pending};
use lockwheel_engine::Engine;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::buffers::{BufferSizes, Buffers};
use lockwheel_engine::sessions::{ClientId, Close};
use lockwheel_engine::statistics::rates::Traffic;
use lockwheel_engine::timing::time::Time;

/// A connected client. The connection's own task serves it; while a script runs on that task's
/// thread, [`crate::host::slow_script`] does.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The client's id in the engine.
    pub(crate) client: ClientId,
    /// Messages and late replies for the client.
    pub(crate) outbox: Outbox,
    gate: Arc<CommitGate>,
    traffic: Arc<Traffic>,
    stream: Stream,
    transfer: Mutex<Transfer>,
    /// The output that a thread will send at the end of its turn: a [`turn::Pending`], or
    /// [`NOT_PENDING`].
    pending: AtomicU8,
    /// Whether the gate has the connection: it has output that is not released.
    is_held: AtomicBool,
}

/// The input and output of a connection.
#[derive(Debug)]
struct Transfer {
    input: Input,
    output: Output,
    parser: Parser,
    /// Whether the bytes in `input` end within a request.
    request_is_partial: bool,
    /// Whether the client has closed its side.
    input_ended: bool,
    /// Whether requests wait until the engine resumes the client.
    waiting: bool,
    /// Whether the connection is closed when `output` has been sent.
    closing: bool,
    /// The sizes that are counted as the client's memory.
    counted: BufferSizes,
    /// Whether the socket is full: the task waits until it is writable.
    socket_full: bool,
    /// Position at which the next bytes were not released: the gate sends them when they are.
    held_at: Option<Position>,
    /// Whether nothing is left but to close the connection.
    must_close: bool,
}

/// Whether a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    Done,
}

impl Connection {
    /// A connection for a client that the engine has already; `buffers` counts its memory.
    pub(crate) fn new(
        client: ClientId,
        buffers: Arc<Buffers>,
        gate: Arc<CommitGate>,
        traffic: Arc<Traffic>,
        stream: Stream,
        parser: Parser,
    ) -> Connection {
        let transfer = Transfer {
            input: Input::default(),
            output: Output::default(),
            parser,
            request_is_partial: false,
            input_ended: false,
            waiting: false,
            closing: false,
            counted: BufferSizes::default(),
            socket_full: false,
            held_at: None,
            must_close: false,
        };
        Connection {
            client,
            outbox: Outbox::new(buffers),
            gate,
            traffic,
            stream,
            transfer: Mutex::new(transfer),
            pending: AtomicU8::new(NOT_PENDING),
            is_held: AtomicBool::new(false),
        }
    }

    /// Serves the client until it disconnects, is disconnected, or the server ends.
    pub(crate) async fn run(self: Arc<Connection>, host: Arc<Host>) {
        let served = self.serve(&host).await;
        // The socket is shut down at once, since later requests of the client would get no reply.
        self.stream.shut_down();
        // A failed engine has no clients any more.
        let _: Result<(), Failed> = host.with(|engine| {
            self.log_end(&host, engine, &served);
            if !self.transfer.lock().output.is_empty() || self.outbox.is_filled() {
                engine.reply_is_lost(self.client);
            }
            host.disconnect(engine, self.client);
        });
        host.registry.remove(self.client);
    }

    /// Logs why the connection has ended.
    fn log_end(&self, host: &Host, engine: &Engine, served: &io::Result<()>) {
        let event = match served {
            Err(error) => &format!("Connection lost ({error}):"),
            Ok(()) if self.transfer.lock().input_ended => "Client closed connection",
            Ok(()) => "Closed connection",
        };
        log_client(engine, self.client, host.now(), event);
    }

    async fn serve(self: &Arc<Self>, host: &Host) -> io::Result<()> {
        // A task keeps its waker. Deliveries from here on wake the task; earlier ones are taken by
        // the first poll.
        let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        self.outbox.set_waker(waker);
        let mut idle_timer = IdleTimer::default();
        let mut last_turn = 0;
        poll_fn(|context| {
            turn::connection_polled(&mut last_turn);
            if host.is_stopping() {
                return Poll::Ready(self.send_last_bytes());
            }
            match self.poll(host, context) {
                Ok(Status::Open) if idle_timer.has_expired(self, host, context) => {
                    debug!("Closing idle client id={}", self.client.serial);
                    Poll::Ready(Ok(()))
                }
                Ok(Status::Open) => Poll::Pending,
                Ok(Status::Done) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Does all work that is possible now, and arranges that the task is woken for more.
    fn poll(self: &Arc<Self>, host: &Host, context: &mut Context<'_>) -> io::Result<Status> {
        let (mut has_read, mut has_written) = (false, false);
        loop {
            let Some(mut transfer) = self.step(host)? else { return Ok(Status::Done) };
            if transfer.socket_full
                && let Poll::Ready(ready) = self.stream.poll_writable(context)
            {
                ready?;
                transfer.socket_full = false;
                if !transfer.may_run() && !has_written {
                    has_written = true;
                    continue;
                }
            }
            if transfer.may_run() || has_written && transfer.can_write() {
                // There is more than a task may run or write at once: other connections, and their
                // new input, come first.
                let _: Poll<()> = pin!(yield_now()).poll(context);
                return Ok(Status::Open);
            }
            if !transfer.wants_input() {
                return Ok(Status::Open);
            }
            match self.stream.poll_readable(context) {
                Poll::Pending => return Ok(Status::Open),
                Poll::Ready(ready) => ready?,
            }
            if has_read {
                // There is more input than one read takes: other connections come first.
                context.waker().wake_by_ref();
                return Ok(Status::Open);
            }
            has_read = self.read(&mut transfer)?;
        }
    }

    /// Runs the requests that have been read; writes or queues the output. Returns nothing if the
    /// connection is done.
    fn step<'a>(self: &'a Arc<Self>, host: &Host) -> io::Result<Option<MutexGuard<'a, Transfer>>> {
        loop {
            let mut transfer = self.transfer.lock();
            transfer.take_outbox(&self.outbox);
            if transfer.must_close {
                return Ok(None);
            }
            if transfer.may_run() {
                // A thread that waits for the engine must not hold the lock that the monitor of
                // slow scripts needs.
                drop(transfer);
                turn::serving(self.client.serial);
                let run = |engine: &mut Engine| {
                    self.run_requests(host, engine, &mut self.transfer.lock(), RequestFilter::All)
                };
                match host.with(run) {
                    Ok(Status::Open) => {}
                    Ok(Status::Done) | Err(Failed) => return Ok(None),
                }
                transfer = self.transfer.lock();
            }
            let has_much = transfer.output.len() > limits::BATCH_REPLY_BYTES_MAX;
            if transfer.can_be_held_back() {
                turn::enqueue(Arc::clone(self), Pending::Reply);
            } else {
                self.write(&mut transfer, limits::BATCH_REPLY_BYTES_MAX)?;
                self.hold_unreleased(&transfer);
            }
            if transfer.is_done() {
                return Ok(None);
            }
            if !transfer.may_run() {
                transfer.input.release();
                return Ok(Some(transfer));
            }
            if has_much {
                return Ok(Some(transfer));
            }
        }
    }

    /// Runs complete requests until there is none left, the client must wait, or there is enough
    /// output. The caller holds the engine.
    fn run_requests(
        &self,
        host: &Host,
        engine: &mut Engine,
        transfer: &mut Transfer,
        filter: RequestFilter,
    ) -> Status {
        // Messages sent before the requests run come before their replies.
        transfer.take_outbox(&self.outbox);
        if transfer.must_close {
            return Status::Done;
        }
        let before = transfer.output.len();
        let (time, now_ns) = host.now_and_ns();
        engine.begin_requests_of(self.client, transfer.whole_sizes(), now_ns);
        let mut request_time = RequestTime::new(time);
        for count in 0..limits::BATCH_REQUESTS_MAX {
            let enough = transfer.output.len() > before + limits::BATCH_REPLY_BYTES_MAX;
            if enough || !transfer.may_run() || !transfer.next_request_passes(filter) {
                break;
            }
            // A single request gains nothing.
            if count % lockwheel_engine::limits::LOOK_AHEAD_REQUESTS == 1 {
                engine.look_ahead(self.client, transfer.input.unread());
            }
            let time = request_time.next(host);
            if self.run_request(host, engine, transfer, time) == Status::Done {
                return Status::Done;
            }
        }
        let limit = output_limit(engine, self.client);
        self.outbox.set_unsent(transfer.output.len());
        self.count_buffers(transfer);
        match self.outbox.check_limit(limit, || host.now().now) {
            LimitCheck::Overrun(bytes) => {
                warn_overrun(self.client, bytes);
                return Status::Done;
            }
            LimitCheck::OverSoft(Some(next)) => engine.check_output_at(self.client, next),
            LimitCheck::OverSoft(None) | LimitCheck::Within => {}
        }
        Status::Open
    }

    /// Counts the buffers as the client's memory.
    fn count_buffers(&self, transfer: &mut Transfer) {
        let sizes = transfer.sizes();
        if sizes != transfer.counted {
            transfer.counted = sizes;
            self.outbox.buffers.set(sizes);
        }
    }

    /// Closes the connection from another thread, whatever its task does. Replies that exist are
    /// sent first, as far as the socket takes them.
    pub(crate) fn close_now(&self) {
        if let Some(mut transfer) = self.transfer.try_lock() {
            // Fails if the client has closed the connection already.
            let _ = self.write(&mut transfer, usize::MAX);
            transfer.must_close = true;
        }
        self.stream.shut_down();
        self.outbox.wake();
    }

    /// Whether there may be output that is not sent.
    #[cfg(feature = "replication")]
    pub(crate) fn has_output(&self) -> bool {
        let transfer = self.transfer.try_lock();
        self.outbox.is_filled() || transfer.is_none_or(|transfer| !transfer.output.is_empty())
    }

    /// Sends all output at the end of the server, as far as the socket takes it.
    fn send_last_bytes(&self) -> io::Result<()> {
        let mut transfer = self.transfer.lock();
        transfer.take_outbox(&self.outbox);
        turn::write_log();
        // Nothing else is left to do, and the log takes no more units.
        self.gate.wait(transfer.output.dependency());
        transfer.socket_full = false;
        self.write(&mut transfer, usize::MAX)
    }

    /// Sends the pending output. The task does the rest: bytes that the socket does not take, and
    /// all other work.
    pub(crate) fn send_pending(self: &Arc<Self>) {
        self.pending.store(NOT_PENDING, Ordering::SeqCst);
        let Some(mut transfer) = self.transfer.try_lock() else {
            // The thread that holds the lock may have looked before the output existed.
            return self.leave_to_its_task();
        };
        let socket_was_full = transfer.socket_full;
        transfer.take_outbox(&self.outbox);
        if self.write(&mut transfer, limits::BATCH_REPLY_BYTES_MAX).is_err() {
            transfer.must_close = true;
        }
        self.hold_unreleased(&transfer);
        if transfer.needs_task() || transfer.socket_full && !socket_was_full {
            self.leave_to_its_task();
        }
    }

    /// Passes the connection to the gate if its next bytes are not released.
    fn hold_unreleased(self: &Arc<Self>, transfer: &Transfer) {
        if let Some(released) = transfer.held_at
            && !self.is_held.swap(true, Ordering::SeqCst)
        {
            self.gate.hold(Arc::clone(self), released);
        }
    }

    /// Sends output that the gate has released.
    pub(crate) fn send_released(self: &Arc<Self>) {
        self.is_held.store(false, Ordering::SeqCst);
        self.send_pending();
    }

    /// Marks the connection: a thread will send its output. Returns whether the caller must
    /// queue the connection: not if it is queued already, unless it is queued for messages and
    /// `pending` is a reply, which is sent earlier.
    pub(crate) fn mark_pending(&self, pending: Pending) -> bool {
        self.pending.fetch_max(mark(pending), Ordering::SeqCst) < mark(pending)
    }

    /// Whether the connection is marked for exactly this.
    pub(crate) fn has_pending(&self, pending: Pending) -> bool {
        self.pending.load(Ordering::SeqCst) == mark(pending)
    }

    /// Wakes the task, which sends all output.
    pub(crate) fn leave_to_its_task(&self) {
        self.pending.store(NOT_PENDING, Ordering::SeqCst);
        self.outbox.wake();
    }

    /// Runs the next request if it has been read completely.
    fn run_request(
        &self,
        host: &Host,
        engine: &mut Engine,
        transfer: &mut Transfer,
        time: Time,
    ) -> Status {
        let Some(state) = engine.session(self.client) else { return Status::Done };
        transfer.parser.set_authenticated(state.identity.is_authenticated());
        let bulk_bytes_max = engine.settings().proto_max_bulk_len_bytes;
        transfer.parser.set_bulk_bytes_max(usize::try_from(bulk_bytes_max).unwrap_or(usize::MAX));
        let used = match transfer.parser.parse(transfer.input.unread()) {
            Ok(Some(used)) => used,
            Ok(None) => {
                transfer.request_is_partial = true;
                let max = engine.settings().client_query_buffer_limit_bytes;
                if transfer.input.len() as u64 <= max {
                    return Status::Open;
                }
                warn!(client = self.client.serial, "closing a client: query buffer limit");
                return Status::Done;
            }
            Err(ProtocolError::QueryBufferFull) => {
                warn!(client = self.client.serial, "closing a client: request too large");
                return Status::Done;
            }
            Err(error) => {
                encode(&Reply::error(error.to_string()), state.protocol, transfer.output.tail());
                log_client(engine, self.client, time, &format!("-{error} from client:"));
                transfer.input.clear();
                transfer.closing = true;
                return Status::Open;
            }
        };
        let reply_start = transfer.output.len();
        let next = {
            let mut argv: SmallVec<[&[u8]; INLINE_ARGUMENTS]> = SmallVec::new();
            transfer.parser.iter(transfer.input.unread()).for_each(|argument| argv.push(argument));
            match argv.first() {
                None => Next::Request,
                Some(name) if is_http(name) => {
                    warn!(client = self.client.serial, "closing a client that speaks HTTP");
                    return Status::Done;
                }
                Some(_) => {
                    host.run_command(engine, time, self.client, &argv, transfer.output.tail())
                }
            }
        };
        if next != Next::SameRequest {
            transfer.input.advance(used);
        }
        match next {
            Next::Request => {}
            Next::LateReply | Next::SameRequest => transfer.waiting = true,
            Next::End => transfer.closing = true,
        }
        let dependency = host.deliver_output(engine);
        if !lockwheel_defects::defect!(RepliesNotGated) {
            transfer.output.depend(reply_start, dependency);
        }
        Status::Open
    }

    /// Reads from the socket; returns whether there was input, or its end.
    fn read(&self, transfer: &mut Transfer) -> io::Result<bool> {
        let needed = transfer.parser.needed().min(limits::READ_BYTES_MAX);
        let outcome = self.stream.read(transfer.input.space(needed));
        if let Ok(read @ 1..) = outcome {
            self.traffic.count_read(read);
        }
        transfer.has_read(outcome)
    }

    /// Writes as much as the socket takes, but no more than about `most` bytes: the task writes the
    /// rest.
    fn write(&self, transfer: &mut Transfer, most: usize) -> io::Result<()> {
        if transfer.closing {
            self.stream.begin_last_write();
        }
        let mut total = 0;
        transfer.held_at = None;
        while transfer.can_write() {
            if total > most {
                transfer.socket_full = true;
                break;
            }
            let mut released = 0;
            let read_released = || {
                released = self.gate.released();
                released
            };
            let front = transfer.output.front(read_released);
            if front.is_empty() {
                transfer.held_at = Some(released);
                break;
            }
            match self.stream.write(front) {
                Ok(written) => {
                    self.traffic.count_write(written);
                    total += written;
                    transfer.remove_written(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    transfer.socket_full = true;
                }
                Err(error) => return Err(error),
            }
        }
        self.outbox.set_unsent(transfer.output.len());
        self.count_buffers(transfer);
        Ok(())
    }

    /// Reads, runs and writes without the runtime, for a caller that holds the engine: while a
    /// script runs on the client's own thread. Does nothing if that thread is serving this
    /// connection.
    pub(crate) fn serve_without_runtime(
        &self,
        host: &Host,
        engine: &mut Engine,
        filter: RequestFilter,
    ) {
        let Some(mut transfer) = self.transfer.try_lock() else { return };
        if transfer.waiting || transfer.closing || transfer.must_close {
            return;
        }
        if transfer.wants_input() {
            let outcome = self.stream.read_directly(transfer.input.space(limits::READ_BYTES));
            // The client's own thread handles the end of input and errors later.
            if let Ok(read @ 1..) = outcome {
                self.traffic.count_read(read);
                let _ = transfer.has_read(outcome);
            }
        }
        // The client's own thread may have read requests and wait for the engine.
        if transfer.may_run()
            && self.run_requests(host, engine, &mut transfer, filter) == Status::Done
        {
            transfer.closing = true;
            transfer.output.clear();
        }
        while !transfer.output.is_empty() {
            match self.stream.write_directly(transfer.output.front(|| self.gate.released())) {
                Ok(written) if written > 0 => {
                    self.traffic.count_write(written);
                    transfer.remove_written(written);
                }
                _ => break,
            }
        }
        self.outbox.set_unsent(transfer.output.len());
        self.count_buffers(&mut transfer);
        self.outbox.wake();
    }

    /// Runs the client's requests after its wait, for a caller that holds the engine and is about
    /// to move the clock. The caller must queue the output. This does not deadlock: no thread waits
    /// for the engine while it holds this lock.
    pub(crate) fn run_in_clock_move(&self, host: &Host, engine: &mut Engine) {
        let mut transfer = self.transfer.lock();
        if self.run_requests(host, engine, &mut transfer, RequestFilter::All) == Status::Done {
            transfer.must_close = true;
        }
    }

    /// Whether the peer has closed the connection, even if the client's own thread has not read
    /// that yet.
    pub(crate) fn peer_has_closed(&self) -> bool {
        let has_closed = self.stream.is_at_end();
        if self.stream.has_input() {
            self.outbox.wake();
        }
        has_closed
    }

    /// How long the client may stay idle at least. As in Redis, blocked clients and subscribers are
    /// never idle.
    fn idle_time_left(&self, host: &Host, timeout_seconds: u32) -> Duration {
        let idle = host.with(|engine| {
            let state = engine.session(self.client)?;
            let busy = state.blocked.is_some() || state.is_subscriber();
            (!busy).then(|| host.now().now.0.saturating_sub(state.active_at.0))
        });
        let idle_ms = u64::try_from(idle.ok().flatten().unwrap_or(0)).unwrap_or(0);
        Duration::from_millis((u64::from(timeout_seconds) * 1000).saturating_sub(idle_ms))
    }
}

impl Transfer {
    /// Whether bytes can be written now.
    fn can_write(&self) -> bool {
        !self.output.is_empty() && !self.socket_full && self.held_at.is_none()
    }

    /// Whether there may be a request to run.
    fn may_run(&self) -> bool {
        !self.waiting && !self.closing && !self.request_is_partial && !self.input.is_empty()
    }

    /// Whether the next request is run now.
    fn next_request_passes(&self, filter: RequestFilter) -> bool {
        filter == RequestFilter::All
            || peek(self.input.unread()).next().is_some_and(|[command, subcommand, ..]| {
                command.eq_ignore_ascii_case(b"lockwheel")
                    && subcommand.eq_ignore_ascii_case(b"clock")
            })
    }

    /// Whether to read more. A client that waits may send requests ahead, but not without bound:
    /// more than `READ_BYTES_MAX` is read only to complete a request.
    fn wants_input(&self) -> bool {
        let space = self.request_is_partial || self.input.len() < limits::READ_BYTES_MAX;
        space && !self.input_ended && !self.closing
    }

    /// Whether nothing is left to do. A client that has shut down its side still gets its replies.
    /// But one that waits is disconnected: it may be gone.
    fn is_done(&self) -> bool {
        let last_output = self.closing || (self.input_ended && !self.may_run());
        (self.output.is_empty() && last_output) || (self.input_ended && self.waiting)
    }

    /// The sizes that count as the client's memory. They include neither output that is sent at the
    /// end of the turn, nor buffers smaller than the overhead counted for every client.
    fn sizes(&self) -> BufferSizes {
        let mut sizes = BufferSizes::default();
        if !self.input.is_empty() {
            sizes.input = self.input.len();
            sizes.input_free = self.input.free();
            sizes.arguments = self.parser.unfinished_bytes();
        }
        if self.socket_full || self.output.len() > limits::HELD_BACK_BYTES {
            self.output.measure(&mut sizes);
        }
        sizes
    }

    /// The sizes of all buffers, also of those that are not counted.
    fn whole_sizes(&self) -> BufferSizes {
        let (input, input_free) = (self.input.len(), self.input.free());
        let mut sizes = BufferSizes { input, input_free, ..BufferSizes::default() };
        self.output.measure(&mut sizes);
        sizes
    }

    /// Whether the output can wait for the end of the turn.
    fn can_be_held_back(&self) -> bool {
        let short = (1..=limits::HELD_BACK_BYTES).contains(&self.output.len());
        short && !self.socket_full && !self.closing && !self.input_ended
    }

    /// Whether there is work that only the connection's task does.
    fn needs_task(&self) -> bool {
        self.must_close || self.closing || self.input_ended || self.may_run()
    }

    /// Takes messages and late replies from the outbox.
    fn take_outbox(&mut self, outbox: &Outbox) {
        let (resume, close) = outbox.take_into(&mut self.output, &mut self.counted);
        self.waiting &= !resume;
        self.closing |= close.is_some();
        self.must_close |= close == Some(Close::Now);
    }

    /// Handles the result of a read; returns whether there was input, or its end.
    fn has_read(&mut self, outcome: io::Result<usize>) -> io::Result<bool> {
        match outcome {
            Ok(0) => self.input_ended = true,
            Ok(read) => {
                self.input.filled(read);
                self.request_is_partial = false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Removes `written` bytes from the output.
    fn remove_written(&mut self, written: usize) {
        self.output.advance(written);
        self.socket_full &= !self.output.is_empty();
    }
}

/// The time of several requests of one connection. It is read again in a new turn: everything that
/// may take long ends the turn.
struct RequestTime {
    time: Time,
    turn: u64,
    /// Number of further requests that use it.
    left: u32,
}

impl RequestTime {
    fn new(time: Time) -> RequestTime {
        RequestTime { time, turn: turn::number(), left: limits::REQUESTS_PER_CLOCK_READ }
    }

    /// The time of the next request.
    fn next(&mut self, host: &Host) -> Time {
        if self.left == 0 || self.turn != turn::number() {
            *self = RequestTime::new(host.now());
        }
        self.left -= 1;
        self.time
    }
}

/// Finds out when a client has been idle for longer than `timeout`.
#[derive(Default)]
struct IdleTimer {
    timeout_seconds: u32,
    /// The number of changes of the clock when the timer was set.
    clock_changes: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimer {
    /// Whether the client must be closed; if not, the task is woken for the next check.
    fn has_expired(
        &mut self,
        connection: &Connection,
        host: &Host,
        context: &mut Context<'_>,
    ) -> bool {
        let timeout_seconds = host.idle_timeout_seconds();
        let clock_changes = host.clock.changes();
        if (self.timeout_seconds, self.clock_changes) != (timeout_seconds, clock_changes) {
            *self = IdleTimer { timeout_seconds, clock_changes, timer: None };
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
            let left = connection.idle_time_left(host, timeout_seconds);
            if left.is_zero() {
                return true;
            }
            let Some(left) = host.clock.real_duration(left) else { return false };
            self.timer = Some(Box::pin(tokio::time::sleep(left)));
        }
    }
}

/// Marks of a connection. Output with a higher mark is sent earlier.
const NOT_PENDING: u8 = 0;

const fn mark(pending: Pending) -> u8 {
    match pending {
        Pending::Messages => 1,
        Pending::Reply => 2,
    }
}

/// Arguments of a request that need no allocation. Scripts of lock libraries have fewer.
const INLINE_ARGUMENTS: usize = 16;

/// Returns whether only an HTTP client sends this command, such as a browser attacked by
/// cross-protocol scripting.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
