//! A client within the server's process, without a connection. It ends with the process.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use lockwheel::{Client, Reply};
use lockwheel_compat::random::Random;

use super::Actor;
use crate::core::{Core, Notice};

/// An in-process client.
pub struct InProcess {
    client: usize,
    random: Random,
    /// The client of the process with this generation.
    call: Option<(u64, CallingTask)>,
    next_us: i64,
    count: u64,
    pending: Option<(String, bool, i64)>,
}

/// A client that runs calls one after the other.
struct CallingTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    mailbox: Rc<RefCell<Mailbox>>,
}

#[derive(Default)]
struct Mailbox {
    request: Option<Vec<String>>,
    reply: Option<Reply>,
}

impl CallingTask {
    fn new(mut client: Client) -> CallingTask {
        let mailbox = Rc::new(RefCell::new(Mailbox::default()));
        let shared = Rc::clone(&mailbox);
        let future = Box::pin(async move {
            loop {
                let request = std::future::poll_fn(|_| match shared.borrow_mut().request.take() {
                    Some(request) => Poll::Ready(request),
                    None => Poll::Pending,
                });
                let request = request.await;
                let Ok(reply) = client.call_raw_async(&request).await else { return };
                shared.borrow_mut().reply = Some(reply);
            }
        });
        CallingTask { future, mailbox }
    }

    /// Whether the client goes on: it ends with its process, and with the leadership of its node.
    fn goes_on(&mut self) -> bool {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

impl InProcess {
    pub fn new(core: &mut Core, client: usize) -> InProcess {
        let random = Random::of(core.plan.seed, core.plan.roles[client].0);
        core.set_timer(client, 5_000, 0);
        InProcess { client, random, call: None, next_us: 0, count: 0, pending: None }
    }

    fn ask(&mut self, core: &mut Core) {
        let recent = core.facts.recent(4);
        let writes = recent.is_empty() || self.random.once_in(3);
        let (mark, request) = if writes {
            self.count += 1;
            let (id, _) = core.plan.roles[self.client];
            let mark = format!("mark:{id}:{:04}", self.count);
            core.facts.note_write_sent(&mark);
            (mark.clone(), vec!["SET".to_owned(), mark, "value".to_owned()])
        } else {
            let mark = self.random.pick(&recent).clone();
            (mark.clone(), vec!["EXISTS".to_owned(), mark])
        };
        let Some((_, call)) = &mut self.call else { return };
        call.mailbox.borrow_mut().request = Some(request);
        self.pending = Some((mark, writes, core.now_us));
        if !call.goes_on() {
            self.lose(core);
        }
    }

    /// Makes another client later.
    fn lose(&mut self, core: &mut Core) {
        (self.call, self.pending) = (None, None);
        core.set_timer(self.client, 10_000, 0);
    }

    fn take_reply(&mut self, core: &mut Core) {
        let Some((_, call)) = &mut self.call else { return };
        let Some(reply) = call.mailbox.borrow_mut().reply.take() else { return };
        let Some((mark, writes, asked_us)) = self.pending.take() else { return };
        let now_us = core.now_us;
        core.trace.add(now_us, "in process", mark.as_bytes(), || format!("{mark}: {reply:?}"));
        match reply {
            Reply::Integer(count) if !writes => {
                let how = "EXISTS in process";
                let wrong = core.facts.answered(&mark, count == 1, asked_us, now_us, how);
                wrong.into_iter().for_each(|text| core.report("mark", text));
            }
            reply if reply == Reply::OK => {
                core.facts.note_written(&mark, now_us, "a reply in process")
            }
            _ => {}
        }
        self.next_us = now_us + self.random.between(0, 10_000);
        core.set_timer(self.client, self.next_us - now_us, 0);
    }
}

impl Actor for InProcess {
    fn notice(&mut self, core: &mut Core, notice: Notice) {
        let Notice::Timer(_) = notice else { return };
        let now_us = core.now_us;
        let machine = &mut core.machines[0];
        let is_up = machine.suspended_until_us <= now_us && machine.server.is_some();
        if core.is_ending {
            return;
        }
        if !is_up {
            return core.set_timer(self.client, 10_000, 0);
        }
        machine.use_clocks(now_us);
        if self.call.is_none() {
            let client = machine.server.as_ref().and_then(|server| server.client().ok());
            let Some(client) = client else { return core.set_timer(self.client, 10_000, 0) };
            self.call = Some((machine.generation, CallingTask::new(client)));
        }
        if self.pending.is_none() && now_us >= self.next_us {
            self.ask(core);
            core.after_server(0);
            self.take_reply(core);
        }
    }

    fn after_step(&mut self, core: &mut Core) {
        let Some((generation, call)) = &mut self.call else { return };
        let machine = &mut core.machines[0];
        if machine.generation != *generation {
            return self.lose(core);
        }
        if machine.suspended_until_us <= core.now_us && self.pending.is_some() {
            machine.use_clocks(core.now_us);
            match call.goes_on() {
                true => self.take_reply(core),
                false => self.lose(core),
            }
        }
    }
}
